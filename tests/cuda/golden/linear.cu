extern "C" __global__ void __launch_bounds__(256, 2) linear_sm_80_g0_small(int64_t rows, int64_t out_features, float* __restrict__ input_x_data, int64_t input_x_rows_stride, float* __restrict__ input_weight_data, int64_t input_weight_out_features_stride, float* __restrict__ input_bias_data, float* __restrict__ result_out_data, int64_t result_out_rows_stride) {
  __shared__ alignas(16) float left_ptr[1088];
  __shared__ alignas(16) float right_ptr[1088];
  int aligned = ((int)(((opsgen_address((&(input_x_data[(int64_t)0]))) | (input_x_rows_stride * (int64_t)4)) & (int64_t)15) == (int64_t)0));
  int aligned_1 = ((int)(((opsgen_address((&(input_weight_data[(int64_t)0]))) | (input_weight_out_features_stride * (int64_t)4)) & (int64_t)15) == (int64_t)0));
  int aligned_2 = ((int)(((opsgen_address((&(input_bias_data[(int64_t)0]))) & (int64_t)15) | ((opsgen_address((&(result_out_data[(int64_t)0]))) | (result_out_rows_stride * (int64_t)4)) & (int64_t)15)) == (int64_t)0));
  int64_t row_tiles = ((rows + (int64_t)63) / (int64_t)64);
  int64_t column_tiles = ((out_features + (int64_t)63) / (int64_t)64);
  int64_t across = (((int64_t)((int)threadIdx.x)) % (int64_t)16);
  int64_t down = (((int64_t)((int)threadIdx.x)) / (int64_t)16);
  int64_t tasks = (row_tiles * column_tiles);
  int64_t step = opsgen_blocks();
  for (int64_t task = ((int64_t)((int)blockIdx.x)); task < tasks; task += step) {
    int64_t row_tile = (task % row_tiles);
    int64_t rest = (task / row_tiles);
    int64_t first_row = (row_tile * (int64_t)64);
    int64_t first_column = (rest * (int64_t)64);
    alignas(16) float sums_ptr[16];
    #pragma unroll
    for (int64_t i = (int64_t)0; i < (int64_t)16; ++i) {
      sums_ptr[i] = 0x0p+0f/*0.000000e+00*/;
    }
    for (int64_t depth = (int64_t)0; depth < (int64_t)768; depth += (int64_t)16) {
      int64_t number = ((int64_t)((int)threadIdx.x));
      int64_t quick = ((number % (int64_t)4) * (int64_t)4);
      int64_t slow = (number / (int64_t)4);
      int64_t position = (first_row + slow);
      int64_t k = (depth + quick);
      int64_t own = min(position, (rows - (int64_t)1));
      if ((k + (int64_t)4) > (int64_t)768) {
        #pragma unroll
        for (int64_t lane = (int64_t)0; lane < (int64_t)4; ++lane) {
          left_ptr[(((quick + lane) * (int64_t)68) + slow)] = 0x0p+0f/*0.000000e+00*/;
        }
      }
      if (k < (int64_t)768) {
        if ((aligned != 0) && ((k + (int64_t)4) <= (int64_t)768)) {
          alignas(16) float x_strip_ptr[4];
          int64_t at = ((own * input_x_rows_stride) + k);
          opsgen_move16((&(x_strip_ptr[(int64_t)0])), (&(input_x_data[at])));
          #pragma unroll
          for (int64_t lane_1 = (int64_t)0; lane_1 < (int64_t)4; ++lane_1) {
            int64_t in_features = (k + lane_1);
            float x = x_strip_ptr[lane_1];
            left_ptr[(((quick + (in_features - k)) * (int64_t)68) + slow)] = x;
          }
        } else {
          int64_t left = min((int64_t)4, ((int64_t)768 - k));
          for (int64_t lane_2 = (int64_t)0; lane_2 < left; ++lane_2) {
            int64_t in_features_1 = (k + lane_2);
            float x_1 = input_x_data[((own * input_x_rows_stride) + in_features_1)];
            left_ptr[(((quick + (in_features_1 - k)) * (int64_t)68) + slow)] = x_1;
          }
        }
      }
      int64_t number_1 = ((int64_t)((int)threadIdx.x));
      int64_t quick_1 = ((number_1 % (int64_t)4) * (int64_t)4);
      int64_t slow_1 = (number_1 / (int64_t)4);
      int64_t position_1 = (first_column + slow_1);
      int64_t k_1 = (depth + quick_1);
      int64_t own_1 = min(position_1, (out_features - (int64_t)1));
      if ((k_1 + (int64_t)4) > (int64_t)768) {
        #pragma unroll
        for (int64_t lane_3 = (int64_t)0; lane_3 < (int64_t)4; ++lane_3) {
          right_ptr[(((quick_1 + lane_3) * (int64_t)68) + slow_1)] = 0x0p+0f/*0.000000e+00*/;
        }
      }
      if (k_1 < (int64_t)768) {
        if ((aligned_1 != 0) && ((k_1 + (int64_t)4) <= (int64_t)768)) {
          alignas(16) float weight_strip_ptr[4];
          int64_t at_1 = ((own_1 * input_weight_out_features_stride) + k_1);
          opsgen_move16((&(weight_strip_ptr[(int64_t)0])), (&(input_weight_data[at_1])));
          #pragma unroll
          for (int64_t lane_4 = (int64_t)0; lane_4 < (int64_t)4; ++lane_4) {
            int64_t in_features_2 = (k_1 + lane_4);
            float weight = weight_strip_ptr[lane_4];
            right_ptr[(((quick_1 + (in_features_2 - k_1)) * (int64_t)68) + slow_1)] = weight;
          }
        } else {
          int64_t left_1 = min((int64_t)4, ((int64_t)768 - k_1));
          for (int64_t lane_5 = (int64_t)0; lane_5 < left_1; ++lane_5) {
            int64_t in_features_3 = (k_1 + lane_5);
            float weight_1 = input_weight_data[((own_1 * input_weight_out_features_stride) + in_features_3)];
            right_ptr[(((quick_1 + (in_features_3 - k_1)) * (int64_t)68) + slow_1)] = weight_1;
          }
        }
      }
      __syncthreads();
      #pragma unroll
      for (int64_t step_1 = (int64_t)0; step_1 < (int64_t)16; ++step_1) {
        int64_t line = (step_1 * (int64_t)68);
        alignas(16) float a_ptr[4];
        opsgen_move16((&(a_ptr[(int64_t)0])), (&(left_ptr[(line + (down * (int64_t)4))])));
        alignas(16) float b_ptr[4];
        opsgen_move16((&(b_ptr[(int64_t)0])), (&(right_ptr[(line + (across * (int64_t)4))])));
        #pragma unroll
        for (int64_t i_1 = (int64_t)0; i_1 < (int64_t)4; ++i_1) {
          #pragma unroll
          for (int64_t j = (int64_t)0; j < (int64_t)4; ++j) {
            sums_ptr[((i_1 * (int64_t)4) + j)] = (sums_ptr[((i_1 * (int64_t)4) + j)] + (a_ptr[i_1] * b_ptr[j]));
          }
        }
      }
      __syncthreads();
    }
    #pragma unroll
    for (int64_t i_2 = (int64_t)0; i_2 < (int64_t)4; ++i_2) {
      int64_t row = ((first_row + (down * (int64_t)4)) + (((i_2 / (int64_t)4) * (int64_t)64) + (i_2 % (int64_t)4)));
      if (row < rows) {
        int64_t column = (first_column + (across * (int64_t)4));
        if (column < out_features) {
          if ((aligned_2 != 0) && ((column + (int64_t)4) <= out_features)) {
            alignas(16) float bias_strip_ptr[4];
            opsgen_move16((&(bias_strip_ptr[(int64_t)0])), (&(input_bias_data[column])));
            alignas(16) float out_out_ptr[4];
            #pragma unroll
            for (int64_t lane_6 = (int64_t)0; lane_6 < (int64_t)4; ++lane_6) {
              int64_t out_features_1 = (column + lane_6);
              float t = sums_ptr[((i_2 * (int64_t)4) + (out_features_1 - column))];
              float bias = bias_strip_ptr[lane_6];
              float t_1 = (t + bias);
              float t_2 = (0x1p-1f/*5.000000e-01*/ * t_1);
              float t_3 = (t_1 * 0x1.6a09e667f3bcdp-1f/*7.071068e-01*/);
              float t_4 = erff(t_3);
              float t_5 = (0x1p+0f/*1.000000e+00*/ + t_4);
              float t_6 = (t_2 * t_5);
              out_out_ptr[lane_6] = t_6;
            }
            int64_t at_2 = ((row * result_out_rows_stride) + column);
            opsgen_move16((&(result_out_data[at_2])), (&(out_out_ptr[(int64_t)0])));
          } else {
            int64_t left_2 = min((int64_t)4, (out_features - column));
            for (int64_t lane_7 = (int64_t)0; lane_7 < left_2; ++lane_7) {
              int64_t out_features_2 = (column + lane_7);
              float t_7 = sums_ptr[((i_2 * (int64_t)4) + (out_features_2 - column))];
              float bias_1 = input_bias_data[out_features_2];
              float t_8 = (t_7 + bias_1);
              float t_9 = (0x1p-1f/*5.000000e-01*/ * t_8);
              float t_10 = (t_8 * 0x1.6a09e667f3bcdp-1f/*7.071068e-01*/);
              float t_11 = erff(t_10);
              float t_12 = (0x1p+0f/*1.000000e+00*/ + t_11);
              float t_13 = (t_9 * t_12);
              result_out_data[((row * result_out_rows_stride) + out_features_2)] = t_13;
            }
          }
        }
      }
    }
  }
}
