extern "C" __global__ void __launch_bounds__(128, 8) softmax_sm_80_g0_rows_to_2048(float* __restrict__ result_out_data, int64_t result_out_rows_stride, float* __restrict__ input_x_data, int64_t input_x_rows_stride, int64_t rows, int64_t columns) {
  int64_t first = (((int64_t)((int)threadIdx.x)) * (int64_t)4);
  int64_t step = opsgen_blocks();
  __shared__ alignas(16) float max_of_warps_ptr[4];
  __shared__ alignas(16) float sum_of_warps_ptr[4];
  for (int64_t task = ((int64_t)((int)blockIdx.x)); task < rows; task += step) {
    alignas(16) float x_strip_ptr[16];
    #pragma unroll
    for (int64_t number = (int64_t)0; number < (int64_t)4; ++number) {
      int64_t start = (first + (number * (int64_t)512));
      if (start < columns) {
        int64_t at = ((task * input_x_rows_stride) + start);
        opsgen_move16((&(x_strip_ptr[(number * (int64_t)4)])), (&(input_x_data[at])));
      }
    }
    alignas(16) float max0_ptr[4];
    #pragma unroll
    for (int64_t lane = (int64_t)0; lane < (int64_t)4; ++lane) {
      max0_ptr[lane] = -CUDART_INF_F;
    }
    #pragma unroll
    for (int64_t number_1 = (int64_t)0; number_1 < (int64_t)4; ++number_1) {
      int64_t start_1 = (first + (number_1 * (int64_t)512));
      if (start_1 < columns) {
        #pragma unroll
        for (int64_t lane_1 = (int64_t)0; lane_1 < (int64_t)4; ++lane_1) {
          int64_t columns_1 = (start_1 + lane_1);
          float x = x_strip_ptr[((number_1 * (int64_t)4) + lane_1)];
          max0_ptr[(((number_1 * (int64_t)4) + lane_1) % (int64_t)4)] = opsgen_maximum(max0_ptr[(((number_1 * (int64_t)4) + lane_1) % (int64_t)4)], x);
        }
      }
    }
    float max_ = max0_ptr[(int64_t)0];
    float max__1 = max0_ptr[(int64_t)1];
    float t = opsgen_maximum(max_, max__1);
    float max__2 = max0_ptr[(int64_t)2];
    float t_1 = opsgen_maximum(t, max__2);
    float max__3 = max0_ptr[(int64_t)3];
    float t_2 = opsgen_maximum(t_1, max__3);
    float t_3 = opsgen_exchange(t_2, 16);
    float t_4 = opsgen_maximum(t_2, t_3);
    float t_5 = opsgen_exchange(t_4, 8);
    float t_6 = opsgen_maximum(t_4, t_5);
    float t_7 = opsgen_exchange(t_6, 4);
    float t_8 = opsgen_maximum(t_6, t_7);
    float t_9 = opsgen_exchange(t_8, 2);
    float t_10 = opsgen_maximum(t_8, t_9);
    float t_11 = opsgen_exchange(t_10, 1);
    float t_12 = opsgen_maximum(t_10, t_11);
    int64_t lane_2 = (((int64_t)((int)threadIdx.x)) % (int64_t)32);
    if (lane_2 == (int64_t)0) {
      max_of_warps_ptr[(((int64_t)((int)threadIdx.x)) / (int64_t)32)] = t_12;
    }
    __syncthreads();
    int64_t turn = (lane_2 % (int64_t)4);
    float t_13 = max_of_warps_ptr[turn];
    float t_14 = opsgen_exchange(t_13, 2);
    float t_15 = opsgen_maximum(t_13, t_14);
    float t_16 = opsgen_exchange(t_15, 1);
    float t_17 = opsgen_maximum(t_15, t_16);
    opsgen_hold_all<16>((&(x_strip_ptr[(int64_t)0])));
    alignas(16) float sum0_ptr[4];
    #pragma unroll
    for (int64_t lane_3 = (int64_t)0; lane_3 < (int64_t)4; ++lane_3) {
      sum0_ptr[lane_3] = 0x0p+0f/*0.000000e+00*/;
    }
    alignas(16) float kept_ptr[16];
    #pragma unroll
    for (int64_t number_2 = (int64_t)0; number_2 < (int64_t)4; ++number_2) {
      int64_t start_2 = (first + (number_2 * (int64_t)512));
      if (start_2 < columns) {
        #pragma unroll
        for (int64_t lane_4 = (int64_t)0; lane_4 < (int64_t)4; ++lane_4) {
          int64_t columns_2 = (start_2 + lane_4);
          float x_1 = x_strip_ptr[((number_2 * (int64_t)4) + lane_4)];
          float t_18 = (x_1 - t_17);
          float t_19 = expf(t_18);
          kept_ptr[((number_2 * (int64_t)4) + lane_4)] = t_19;
          sum0_ptr[(((number_2 * (int64_t)4) + lane_4) % (int64_t)4)] = (sum0_ptr[(((number_2 * (int64_t)4) + lane_4) % (int64_t)4)] + t_19);
        }
      }
    }
    float sum = sum0_ptr[(int64_t)0];
    float sum_1 = sum0_ptr[(int64_t)1];
    float t_20 = (sum + sum_1);
    float sum_2 = sum0_ptr[(int64_t)2];
    float t_21 = (t_20 + sum_2);
    float sum_3 = sum0_ptr[(int64_t)3];
    float t_22 = (t_21 + sum_3);
    float t_23 = opsgen_exchange(t_22, 16);
    float t_24 = (t_22 + t_23);
    float t_25 = opsgen_exchange(t_24, 8);
    float t_26 = (t_24 + t_25);
    float t_27 = opsgen_exchange(t_26, 4);
    float t_28 = (t_26 + t_27);
    float t_29 = opsgen_exchange(t_28, 2);
    float t_30 = (t_28 + t_29);
    float t_31 = opsgen_exchange(t_30, 1);
    float t_32 = (t_30 + t_31);
    int64_t lane_5 = (((int64_t)((int)threadIdx.x)) % (int64_t)32);
    if (lane_5 == (int64_t)0) {
      sum_of_warps_ptr[(((int64_t)((int)threadIdx.x)) / (int64_t)32)] = t_32;
    }
    __syncthreads();
    int64_t turn_1 = (lane_5 % (int64_t)4);
    float t_33 = sum_of_warps_ptr[turn_1];
    float t_34 = opsgen_exchange(t_33, 2);
    float t_35 = (t_33 + t_34);
    float t_36 = opsgen_exchange(t_35, 1);
    float t_37 = (t_35 + t_36);
    opsgen_hold_all<16>((&(x_strip_ptr[(int64_t)0])));
    int t_38 = (opsgen_as<int>(t_37) & 2139095040);
      int v_ = (t_38 < 1065353216) ? (2122317824 - t_38) : max((2130706432 - t_38), 8388608);
    float t_39 = opsgen_as<float>(v_);
    float inverse = (0x1p+0f/*1.000000e+00*/ / (t_37 * t_39));
    #pragma unroll
    for (int64_t number_3 = (int64_t)0; number_3 < (int64_t)4; ++number_3) {
      int64_t start_3 = (first + (number_3 * (int64_t)512));
      if (start_3 < columns) {
        alignas(16) float out_out_ptr[4];
        #pragma unroll
        for (int64_t lane_6 = (int64_t)0; lane_6 < (int64_t)4; ++lane_6) {
          int64_t columns_3 = (start_3 + lane_6);
          float t_40 = kept_ptr[((number_3 * (int64_t)4) + lane_6)];
          float t_41 = (t_40 * t_39);
          float t_42 = (t_41 * inverse);
          out_out_ptr[lane_6] = t_42;
        }
        int64_t at_1 = ((task * result_out_rows_stride) + start_3);
        opsgen_move16((&(result_out_data[at_1])), (&(out_out_ptr[(int64_t)0])));
      }
    }
    __syncthreads();
  }
}
