extern "C" __global__ void __launch_bounds__(512, 1) softmax_sm_80_g0_block(float* __restrict__ input_x_data, int64_t input_x_rows_stride, int64_t rows, int64_t columns, float* __restrict__ result_out_data, int64_t result_out_rows_stride) {
  int aligned = ((int)((((opsgen_address((&(input_x_data[(int64_t)0]))) | (input_x_rows_stride * (int64_t)4)) & (int64_t)15) | ((opsgen_address((&(result_out_data[(int64_t)0]))) | (result_out_rows_stride * (int64_t)4)) & (int64_t)15)) == (int64_t)0));
  int64_t pitch = (((columns + (int64_t)3) / (int64_t)4) * (int64_t)4);
  extern __shared__ __align__(16) float kept_ptr[];
  int64_t step = opsgen_blocks();
  __shared__ alignas(16) float max_of_warps_ptr[16];
  __shared__ alignas(16) float sum_of_warps_ptr[16];
  for (int64_t task = ((int64_t)((int)blockIdx.x)); task < rows; task += step) {
    alignas(16) float max0_ptr[1];
    max0_ptr[(int64_t)0] = -CUDART_INF_F;
    int64_t first = (((int64_t)((int)threadIdx.x)) * (int64_t)4);
    for (int64_t start = first; start < columns; start += (int64_t)2048) {
      if ((aligned != 0) && ((start + (int64_t)4) <= columns)) {
        alignas(16) float x_strip_ptr[4];
        int64_t at = ((task * input_x_rows_stride) + start);
        opsgen_move16((&(x_strip_ptr[(int64_t)0])), (&(input_x_data[at])));
        alignas(16) float kept_out_ptr[4];
        #pragma unroll
        for (int64_t lane = (int64_t)0; lane < (int64_t)4; ++lane) {
          int64_t columns_1 = (start + lane);
          float x = x_strip_ptr[lane];
          kept_out_ptr[lane] = x;
          max0_ptr[(int64_t)0] = opsgen_maximum(max0_ptr[(int64_t)0], x);
        }
        opsgen_move16((&(kept_ptr[start])), (&(kept_out_ptr[(int64_t)0])));
      } else {
        int64_t left = min((int64_t)4, (columns - start));
        for (int64_t lane_1 = (int64_t)0; lane_1 < left; ++lane_1) {
          int64_t columns_2 = (start + lane_1);
          float x_1 = input_x_data[((task * input_x_rows_stride) + columns_2)];
          kept_ptr[columns_2] = x_1;
          max0_ptr[(int64_t)0] = opsgen_maximum(max0_ptr[(int64_t)0], x_1);
        }
      }
    }
    float max_ = max0_ptr[(int64_t)0];
    float t = opsgen_exchange(max_, 16);
    float t_1 = opsgen_maximum(max_, t);
    float t_2 = opsgen_exchange(t_1, 8);
    float t_3 = opsgen_maximum(t_1, t_2);
    float t_4 = opsgen_exchange(t_3, 4);
    float t_5 = opsgen_maximum(t_3, t_4);
    float t_6 = opsgen_exchange(t_5, 2);
    float t_7 = opsgen_maximum(t_5, t_6);
    float t_8 = opsgen_exchange(t_7, 1);
    float t_9 = opsgen_maximum(t_7, t_8);
    int64_t lane_2 = (((int64_t)((int)threadIdx.x)) % (int64_t)32);
    if (lane_2 == (int64_t)0) {
      max_of_warps_ptr[(((int64_t)((int)threadIdx.x)) / (int64_t)32)] = t_9;
    }
    __syncthreads();
    int64_t at_1 = (lane_2 % (int64_t)16);
    float t_10 = max_of_warps_ptr[at_1];
    float t_11 = opsgen_exchange(t_10, 8);
    float t_12 = opsgen_maximum(t_10, t_11);
    float t_13 = opsgen_exchange(t_12, 4);
    float t_14 = opsgen_maximum(t_12, t_13);
    float t_15 = opsgen_exchange(t_14, 2);
    float t_16 = opsgen_maximum(t_14, t_15);
    float t_17 = opsgen_exchange(t_16, 1);
    float t_18 = opsgen_maximum(t_16, t_17);
    alignas(16) float sum1_ptr[1];
    sum1_ptr[(int64_t)0] = 0x0p+0f/*0.000000e+00*/;
    int64_t first_1 = (((int64_t)((int)threadIdx.x)) * (int64_t)4);
    for (int64_t start_1 = first_1; start_1 < columns; start_1 += (int64_t)2048) {
      if ((aligned != 0) && ((start_1 + (int64_t)4) <= columns)) {
        alignas(16) float kept_strip_ptr[4];
        opsgen_move16((&(kept_strip_ptr[(int64_t)0])), (&(kept_ptr[start_1])));
        alignas(16) float kept_out_ptr_1[4];
        #pragma unroll
        for (int64_t lane_3 = (int64_t)0; lane_3 < (int64_t)4; ++lane_3) {
          int64_t columns_3 = (start_1 + lane_3);
          float x_2 = kept_strip_ptr[lane_3];
          float t_19 = (x_2 - t_18);
          float t_20 = expf(t_19);
          kept_out_ptr_1[lane_3] = t_20;
          sum1_ptr[(int64_t)0] = (sum1_ptr[(int64_t)0] + t_20);
        }
        int64_t at_2 = (pitch + start_1);
        opsgen_move16((&(kept_ptr[at_2])), (&(kept_out_ptr_1[(int64_t)0])));
      } else {
        int64_t left_1 = min((int64_t)4, (columns - start_1));
        for (int64_t lane_4 = (int64_t)0; lane_4 < left_1; ++lane_4) {
          int64_t columns_4 = (start_1 + lane_4);
          float x_3 = kept_ptr[columns_4];
          float t_21 = (x_3 - t_18);
          float t_22 = expf(t_21);
          kept_ptr[(pitch + columns_4)] = t_22;
          sum1_ptr[(int64_t)0] = (sum1_ptr[(int64_t)0] + t_22);
        }
      }
    }
    float sum = sum1_ptr[(int64_t)0];
    float t_23 = opsgen_exchange(sum, 16);
    float t_24 = (sum + t_23);
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
    int64_t at_3 = (lane_5 % (int64_t)16);
    float t_33 = sum_of_warps_ptr[at_3];
    float t_34 = opsgen_exchange(t_33, 8);
    float t_35 = (t_33 + t_34);
    float t_36 = opsgen_exchange(t_35, 4);
    float t_37 = (t_35 + t_36);
    float t_38 = opsgen_exchange(t_37, 2);
    float t_39 = (t_37 + t_38);
    float t_40 = opsgen_exchange(t_39, 1);
    float t_41 = (t_39 + t_40);
    int64_t first_2 = (((int64_t)((int)threadIdx.x)) * (int64_t)4);
    int t_42 = (opsgen_as<int>(t_41) & 2139095040);
      int v_ = (t_42 < 1065353216) ? (2122317824 - t_42) : max((2130706432 - t_42), 8388608);
    float t_43 = opsgen_as<float>(v_);
    float inverse = (0x1p+0f/*1.000000e+00*/ / (t_41 * t_43));
    for (int64_t start_2 = first_2; start_2 < columns; start_2 += (int64_t)2048) {
      if ((aligned != 0) && ((start_2 + (int64_t)4) <= columns)) {
        alignas(16) float kept_strip_ptr_1[4];
        int64_t at_4 = (pitch + start_2);
        opsgen_move16((&(kept_strip_ptr_1[(int64_t)0])), (&(kept_ptr[at_4])));
        alignas(16) float out_out_ptr[4];
        #pragma unroll
        for (int64_t lane_6 = (int64_t)0; lane_6 < (int64_t)4; ++lane_6) {
          int64_t columns_5 = (start_2 + lane_6);
          float t_44 = kept_strip_ptr_1[lane_6];
          float t_45 = (t_44 * t_43);
          float t_46 = (t_45 * inverse);
          out_out_ptr[lane_6] = t_46;
        }
        int64_t at_5 = ((task * result_out_rows_stride) + start_2);
        opsgen_move16((&(result_out_data[at_5])), (&(out_out_ptr[(int64_t)0])));
      } else {
        int64_t left_2 = min((int64_t)4, (columns - start_2));
        for (int64_t lane_7 = (int64_t)0; lane_7 < left_2; ++lane_7) {
          int64_t columns_6 = (start_2 + lane_7);
          float t_47 = kept_ptr[(pitch + columns_6)];
          float t_48 = (t_47 * t_43);
          float t_49 = (t_48 * inverse);
          result_out_data[((task * result_out_rows_stride) + columns_6)] = t_49;
        }
      }
    }
    __syncthreads();
  }
}
