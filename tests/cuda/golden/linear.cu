extern "C" __global__ void __launch_bounds__(128, 4) linear_sm_80_g0_small(int64_t rows, int64_t out_features, float* __restrict__ input_bias_data, float* __restrict__ result_out_data, int64_t result_out_rows_stride, float* __restrict__ input_x_data, int64_t input_x_rows_stride, float* __restrict__ input_weight_data, int64_t input_weight_out_features_stride) {
  int64_t lane = (((int64_t)((int)threadIdx.x)) % (int64_t)32);
  int64_t warp = (((int64_t)((int)threadIdx.x)) / (int64_t)32);
  int aligned = ((int)(((opsgen_address((&(input_bias_data[(int64_t)0]))) & (int64_t)15) | ((opsgen_address((&(result_out_data[(int64_t)0]))) | (result_out_rows_stride * (int64_t)4)) & (int64_t)15)) == (int64_t)0));
  extern __shared__ __align__(16) float kept_ptr[];
  int64_t row = (((warp / (int64_t)2) * (int64_t)32) + ((lane / (int64_t)8) * (int64_t)4));
  int64_t column = (((warp % (int64_t)2) * (int64_t)32) + ((lane % (int64_t)8) * (int64_t)4));
  int64_t row_tiles = ((rows + (int64_t)63) / (int64_t)64);
  int64_t column_tiles = ((out_features + (int64_t)63) / (int64_t)64);
  int64_t in_band = (column_tiles * (int64_t)8);
  int64_t matrix = (row_tiles * column_tiles);
  int64_t band = ((((int64_t)((int)blockIdx.x)) / in_band) * (int64_t)8);
  int64_t rest = (((int64_t)((int)blockIdx.x)) % in_band);
  int64_t high = min((row_tiles - band), (int64_t)8);
  int64_t first_row = ((band + (rest % high)) * (int64_t)64);
  int64_t first_column = ((rest / high) * (int64_t)64);
  alignas(16) float a_ptr[16];
  alignas(16) float b_ptr[8];
  alignas(16) float sums_ptr[32];
  #pragma unroll
  for (int64_t i = (int64_t)0; i < (int64_t)32; ++i) {
    sums_ptr[i] = 0x0p+0f/*0.000000e+00*/;
  }
  int64_t quick = ((((int64_t)((int)threadIdx.x)) % (int64_t)4) * (int64_t)4);
  int64_t slow = (((int64_t)((int)threadIdx.x)) / (int64_t)4);
  int64_t slow_1 = (slow + (int64_t)32);
  int64_t position = (first_row + slow);
  int64_t own = min(position, (rows - (int64_t)1));
  int64_t position_1 = (first_row + slow_1);
  int64_t own_1 = min(position_1, (rows - (int64_t)1));
  alignas(16) float x_raw_ptr[8];
  int64_t quick_1 = ((((int64_t)((int)threadIdx.x)) % (int64_t)4) * (int64_t)4);
  int64_t slow_2 = (((int64_t)((int)threadIdx.x)) / (int64_t)4);
  int64_t slow_3 = (slow_2 + (int64_t)32);
  int64_t position_2 = (first_column + slow_2);
  int64_t own_2 = min(position_2, (out_features - (int64_t)1));
  int64_t position_3 = (first_column + slow_3);
  int64_t own_3 = min(position_3, (out_features - (int64_t)1));
  alignas(16) float weight_raw_ptr[8];
  opsgen_clear16((&(x_raw_ptr[(int64_t)0])));
  if (quick < (int64_t)768) {
    int64_t at = ((own * input_x_rows_stride) + quick);
    opsgen_move16((&(x_raw_ptr[(int64_t)0])), (&(input_x_data[at])));
  }
  opsgen_clear16((&(x_raw_ptr[(int64_t)4])));
  if (quick < (int64_t)768) {
    int64_t at_1 = ((own_1 * input_x_rows_stride) + quick);
    opsgen_move16((&(x_raw_ptr[(int64_t)4])), (&(input_x_data[at_1])));
  }
  opsgen_clear16((&(weight_raw_ptr[(int64_t)0])));
  if (quick_1 < (int64_t)768) {
    int64_t at_2 = ((own_2 * input_weight_out_features_stride) + quick_1);
    opsgen_move16((&(weight_raw_ptr[(int64_t)0])), (&(input_weight_data[at_2])));
  }
  opsgen_clear16((&(weight_raw_ptr[(int64_t)4])));
  if (quick_1 < (int64_t)768) {
    int64_t at_3 = ((own_3 * input_weight_out_features_stride) + quick_1);
    opsgen_move16((&(weight_raw_ptr[(int64_t)4])), (&(input_weight_data[at_3])));
  }
  alignas(16) float values_ptr[4];
  #pragma unroll
  for (int64_t lane_1 = (int64_t)0; lane_1 < (int64_t)4; ++lane_1) {
    int64_t k = (quick + lane_1);
    float x = x_raw_ptr[lane_1];
    values_ptr[lane_1] = x;
  }
  int64_t line = (((quick * (int64_t)64) + ((quick / (int64_t)4) * (int64_t)8)) + slow);
  kept_ptr[line] = values_ptr[(int64_t)0];
  kept_ptr[(line + (int64_t)64)] = values_ptr[(int64_t)1];
  kept_ptr[(line + (int64_t)128)] = values_ptr[(int64_t)2];
  kept_ptr[(line + (int64_t)192)] = values_ptr[(int64_t)3];
  alignas(16) float values_ptr_1[4];
  #pragma unroll
  for (int64_t lane_2 = (int64_t)0; lane_2 < (int64_t)4; ++lane_2) {
    int64_t k_1 = (quick + lane_2);
    float x_1 = x_raw_ptr[((int64_t)4 + lane_2)];
    values_ptr_1[lane_2] = x_1;
  }
  int64_t line_1 = (((quick * (int64_t)64) + ((quick / (int64_t)4) * (int64_t)8)) + slow_1);
  kept_ptr[line_1] = values_ptr_1[(int64_t)0];
  kept_ptr[(line_1 + (int64_t)64)] = values_ptr_1[(int64_t)1];
  kept_ptr[(line_1 + (int64_t)128)] = values_ptr_1[(int64_t)2];
  kept_ptr[(line_1 + (int64_t)192)] = values_ptr_1[(int64_t)3];
  alignas(16) float values_ptr_2[4];
  #pragma unroll
  for (int64_t lane_3 = (int64_t)0; lane_3 < (int64_t)4; ++lane_3) {
    int64_t k_2 = (quick_1 + lane_3);
    float weight = weight_raw_ptr[lane_3];
    values_ptr_2[lane_3] = weight;
  }
  int64_t line_2 = (((int64_t)1056 + ((quick_1 * (int64_t)64) + ((quick_1 / (int64_t)4) * (int64_t)8))) + slow_2);
  kept_ptr[line_2] = values_ptr_2[(int64_t)0];
  kept_ptr[(line_2 + (int64_t)64)] = values_ptr_2[(int64_t)1];
  kept_ptr[(line_2 + (int64_t)128)] = values_ptr_2[(int64_t)2];
  kept_ptr[(line_2 + (int64_t)192)] = values_ptr_2[(int64_t)3];
  alignas(16) float values_ptr_3[4];
  #pragma unroll
  for (int64_t lane_4 = (int64_t)0; lane_4 < (int64_t)4; ++lane_4) {
    int64_t k_3 = (quick_1 + lane_4);
    float weight_1 = weight_raw_ptr[((int64_t)4 + lane_4)];
    values_ptr_3[lane_4] = weight_1;
  }
  int64_t line_3 = (((int64_t)1056 + ((quick_1 * (int64_t)64) + ((quick_1 / (int64_t)4) * (int64_t)8))) + slow_3);
  kept_ptr[line_3] = values_ptr_3[(int64_t)0];
  kept_ptr[(line_3 + (int64_t)64)] = values_ptr_3[(int64_t)1];
  kept_ptr[(line_3 + (int64_t)128)] = values_ptr_3[(int64_t)2];
  kept_ptr[(line_3 + (int64_t)192)] = values_ptr_3[(int64_t)3];
  __syncthreads();
  alignas(16) int reading_ptr[1];
  alignas(16) int writing_ptr[1];
  reading_ptr[(int64_t)0] = 0;
  writing_ptr[(int64_t)0] = 2112;
  opsgen_move16((&(a_ptr[(int64_t)0])), (&(kept_ptr[row])));
  opsgen_move16((&(a_ptr[(int64_t)4])), (&(kept_ptr[(row + (int64_t)16)])));
  opsgen_move16((&(b_ptr[(int64_t)0])), (&(kept_ptr[(column + (int64_t)1056)])));
  for (int64_t start = (int64_t)0; start < (int64_t)768; start += (int64_t)16) {
    int64_t following = (start + (int64_t)16);
    int64_t to = ((int64_t)writing_ptr[(int64_t)0]);
    int64_t from = ((int64_t)reading_ptr[(int64_t)0]);
    int64_t first = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)8])), (&(kept_ptr[(first + (int64_t)64)])));
    opsgen_move16((&(a_ptr[(int64_t)12])), (&(kept_ptr[(first + (int64_t)80)])));
    int64_t first_1 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)4])), (&(kept_ptr[(first_1 + (int64_t)1120)])));
    int64_t k_4 = (following + quick);
    opsgen_clear16((&(x_raw_ptr[(int64_t)0])));
    if (k_4 < (int64_t)768) {
      int64_t at_4 = ((own * input_x_rows_stride) + k_4);
      opsgen_move16((&(x_raw_ptr[(int64_t)0])), (&(input_x_data[at_4])));
    }
    int64_t k_5 = (following + quick);
    opsgen_clear16((&(x_raw_ptr[(int64_t)4])));
    if (k_5 < (int64_t)768) {
      int64_t at_5 = ((own_1 * input_x_rows_stride) + k_5);
      opsgen_move16((&(x_raw_ptr[(int64_t)4])), (&(input_x_data[at_5])));
    }
    int64_t k_6 = (following + quick_1);
    opsgen_clear16((&(weight_raw_ptr[(int64_t)0])));
    if (k_6 < (int64_t)768) {
      int64_t at_6 = ((own_2 * input_weight_out_features_stride) + k_6);
      opsgen_move16((&(weight_raw_ptr[(int64_t)0])), (&(input_weight_data[at_6])));
    }
    int64_t k_7 = (following + quick_1);
    opsgen_clear16((&(weight_raw_ptr[(int64_t)4])));
    if (k_7 < (int64_t)768) {
      int64_t at_7 = ((own_3 * input_weight_out_features_stride) + k_7);
      opsgen_move16((&(weight_raw_ptr[(int64_t)4])), (&(input_weight_data[at_7])));
    }
    #pragma unroll
    for (int64_t i_1 = (int64_t)0; i_1 < (int64_t)8; ++i_1) {
      #pragma unroll
      for (int64_t j = (int64_t)0; j < (int64_t)4; ++j) {
        sums_ptr[((i_1 * (int64_t)4) + j)] = (sums_ptr[((i_1 * (int64_t)4) + j)] + (a_ptr[i_1] * b_ptr[j]));
      }
    }
    int64_t first_2 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)0])), (&(kept_ptr[(first_2 + (int64_t)128)])));
    opsgen_move16((&(a_ptr[(int64_t)4])), (&(kept_ptr[(first_2 + (int64_t)144)])));
    int64_t first_3 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)0])), (&(kept_ptr[(first_3 + (int64_t)1184)])));
    #pragma unroll
    for (int64_t i_2 = (int64_t)0; i_2 < (int64_t)8; ++i_2) {
      #pragma unroll
      for (int64_t j_1 = (int64_t)0; j_1 < (int64_t)4; ++j_1) {
        sums_ptr[((i_2 * (int64_t)4) + j_1)] = (sums_ptr[((i_2 * (int64_t)4) + j_1)] + (a_ptr[(i_2 + (int64_t)8)] * b_ptr[(j_1 + (int64_t)4)]));
      }
    }
    int64_t first_4 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)8])), (&(kept_ptr[(first_4 + (int64_t)192)])));
    opsgen_move16((&(a_ptr[(int64_t)12])), (&(kept_ptr[(first_4 + (int64_t)208)])));
    int64_t first_5 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)4])), (&(kept_ptr[(first_5 + (int64_t)1248)])));
    #pragma unroll
    for (int64_t i_3 = (int64_t)0; i_3 < (int64_t)8; ++i_3) {
      #pragma unroll
      for (int64_t j_2 = (int64_t)0; j_2 < (int64_t)4; ++j_2) {
        sums_ptr[((i_3 * (int64_t)4) + j_2)] = (sums_ptr[((i_3 * (int64_t)4) + j_2)] + (a_ptr[i_3] * b_ptr[j_2]));
      }
    }
    int64_t first_6 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)0])), (&(kept_ptr[(first_6 + (int64_t)264)])));
    opsgen_move16((&(a_ptr[(int64_t)4])), (&(kept_ptr[(first_6 + (int64_t)280)])));
    int64_t first_7 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)0])), (&(kept_ptr[(first_7 + (int64_t)1320)])));
    #pragma unroll
    for (int64_t i_4 = (int64_t)0; i_4 < (int64_t)8; ++i_4) {
      #pragma unroll
      for (int64_t j_3 = (int64_t)0; j_3 < (int64_t)4; ++j_3) {
        sums_ptr[((i_4 * (int64_t)4) + j_3)] = (sums_ptr[((i_4 * (int64_t)4) + j_3)] + (a_ptr[(i_4 + (int64_t)8)] * b_ptr[(j_3 + (int64_t)4)]));
      }
    }
    int64_t first_8 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)8])), (&(kept_ptr[(first_8 + (int64_t)328)])));
    opsgen_move16((&(a_ptr[(int64_t)12])), (&(kept_ptr[(first_8 + (int64_t)344)])));
    int64_t first_9 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)4])), (&(kept_ptr[(first_9 + (int64_t)1384)])));
    #pragma unroll
    for (int64_t i_5 = (int64_t)0; i_5 < (int64_t)8; ++i_5) {
      #pragma unroll
      for (int64_t j_4 = (int64_t)0; j_4 < (int64_t)4; ++j_4) {
        sums_ptr[((i_5 * (int64_t)4) + j_4)] = (sums_ptr[((i_5 * (int64_t)4) + j_4)] + (a_ptr[i_5] * b_ptr[j_4]));
      }
    }
    int64_t first_10 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)0])), (&(kept_ptr[(first_10 + (int64_t)392)])));
    opsgen_move16((&(a_ptr[(int64_t)4])), (&(kept_ptr[(first_10 + (int64_t)408)])));
    int64_t first_11 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)0])), (&(kept_ptr[(first_11 + (int64_t)1448)])));
    #pragma unroll
    for (int64_t i_6 = (int64_t)0; i_6 < (int64_t)8; ++i_6) {
      #pragma unroll
      for (int64_t j_5 = (int64_t)0; j_5 < (int64_t)4; ++j_5) {
        sums_ptr[((i_6 * (int64_t)4) + j_5)] = (sums_ptr[((i_6 * (int64_t)4) + j_5)] + (a_ptr[(i_6 + (int64_t)8)] * b_ptr[(j_5 + (int64_t)4)]));
      }
    }
    int64_t first_12 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)8])), (&(kept_ptr[(first_12 + (int64_t)456)])));
    opsgen_move16((&(a_ptr[(int64_t)12])), (&(kept_ptr[(first_12 + (int64_t)472)])));
    int64_t first_13 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)4])), (&(kept_ptr[(first_13 + (int64_t)1512)])));
    #pragma unroll
    for (int64_t i_7 = (int64_t)0; i_7 < (int64_t)8; ++i_7) {
      #pragma unroll
      for (int64_t j_6 = (int64_t)0; j_6 < (int64_t)4; ++j_6) {
        sums_ptr[((i_7 * (int64_t)4) + j_6)] = (sums_ptr[((i_7 * (int64_t)4) + j_6)] + (a_ptr[i_7] * b_ptr[j_6]));
      }
    }
    int64_t first_14 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)0])), (&(kept_ptr[(first_14 + (int64_t)528)])));
    opsgen_move16((&(a_ptr[(int64_t)4])), (&(kept_ptr[(first_14 + (int64_t)544)])));
    int64_t first_15 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)0])), (&(kept_ptr[(first_15 + (int64_t)1584)])));
    #pragma unroll
    for (int64_t i_8 = (int64_t)0; i_8 < (int64_t)8; ++i_8) {
      #pragma unroll
      for (int64_t j_7 = (int64_t)0; j_7 < (int64_t)4; ++j_7) {
        sums_ptr[((i_8 * (int64_t)4) + j_7)] = (sums_ptr[((i_8 * (int64_t)4) + j_7)] + (a_ptr[(i_8 + (int64_t)8)] * b_ptr[(j_7 + (int64_t)4)]));
      }
    }
    int64_t first_16 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)8])), (&(kept_ptr[(first_16 + (int64_t)592)])));
    opsgen_move16((&(a_ptr[(int64_t)12])), (&(kept_ptr[(first_16 + (int64_t)608)])));
    int64_t first_17 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)4])), (&(kept_ptr[(first_17 + (int64_t)1648)])));
    #pragma unroll
    for (int64_t i_9 = (int64_t)0; i_9 < (int64_t)8; ++i_9) {
      #pragma unroll
      for (int64_t j_8 = (int64_t)0; j_8 < (int64_t)4; ++j_8) {
        sums_ptr[((i_9 * (int64_t)4) + j_8)] = (sums_ptr[((i_9 * (int64_t)4) + j_8)] + (a_ptr[i_9] * b_ptr[j_8]));
      }
    }
    int64_t first_18 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)0])), (&(kept_ptr[(first_18 + (int64_t)656)])));
    opsgen_move16((&(a_ptr[(int64_t)4])), (&(kept_ptr[(first_18 + (int64_t)672)])));
    int64_t first_19 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)0])), (&(kept_ptr[(first_19 + (int64_t)1712)])));
    #pragma unroll
    for (int64_t i_10 = (int64_t)0; i_10 < (int64_t)8; ++i_10) {
      #pragma unroll
      for (int64_t j_9 = (int64_t)0; j_9 < (int64_t)4; ++j_9) {
        sums_ptr[((i_10 * (int64_t)4) + j_9)] = (sums_ptr[((i_10 * (int64_t)4) + j_9)] + (a_ptr[(i_10 + (int64_t)8)] * b_ptr[(j_9 + (int64_t)4)]));
      }
    }
    int64_t first_20 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)8])), (&(kept_ptr[(first_20 + (int64_t)720)])));
    opsgen_move16((&(a_ptr[(int64_t)12])), (&(kept_ptr[(first_20 + (int64_t)736)])));
    int64_t first_21 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)4])), (&(kept_ptr[(first_21 + (int64_t)1776)])));
    #pragma unroll
    for (int64_t i_11 = (int64_t)0; i_11 < (int64_t)8; ++i_11) {
      #pragma unroll
      for (int64_t j_10 = (int64_t)0; j_10 < (int64_t)4; ++j_10) {
        sums_ptr[((i_11 * (int64_t)4) + j_10)] = (sums_ptr[((i_11 * (int64_t)4) + j_10)] + (a_ptr[i_11] * b_ptr[j_10]));
      }
    }
    int64_t first_22 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)0])), (&(kept_ptr[(first_22 + (int64_t)792)])));
    opsgen_move16((&(a_ptr[(int64_t)4])), (&(kept_ptr[(first_22 + (int64_t)808)])));
    int64_t first_23 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)0])), (&(kept_ptr[(first_23 + (int64_t)1848)])));
    #pragma unroll
    for (int64_t i_12 = (int64_t)0; i_12 < (int64_t)8; ++i_12) {
      #pragma unroll
      for (int64_t j_11 = (int64_t)0; j_11 < (int64_t)4; ++j_11) {
        sums_ptr[((i_12 * (int64_t)4) + j_11)] = (sums_ptr[((i_12 * (int64_t)4) + j_11)] + (a_ptr[(i_12 + (int64_t)8)] * b_ptr[(j_11 + (int64_t)4)]));
      }
    }
    int64_t first_24 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)8])), (&(kept_ptr[(first_24 + (int64_t)856)])));
    opsgen_move16((&(a_ptr[(int64_t)12])), (&(kept_ptr[(first_24 + (int64_t)872)])));
    int64_t first_25 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)4])), (&(kept_ptr[(first_25 + (int64_t)1912)])));
    #pragma unroll
    for (int64_t i_13 = (int64_t)0; i_13 < (int64_t)8; ++i_13) {
      #pragma unroll
      for (int64_t j_12 = (int64_t)0; j_12 < (int64_t)4; ++j_12) {
        sums_ptr[((i_13 * (int64_t)4) + j_12)] = (sums_ptr[((i_13 * (int64_t)4) + j_12)] + (a_ptr[i_13] * b_ptr[j_12]));
      }
    }
    int64_t first_26 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)0])), (&(kept_ptr[(first_26 + (int64_t)920)])));
    opsgen_move16((&(a_ptr[(int64_t)4])), (&(kept_ptr[(first_26 + (int64_t)936)])));
    int64_t first_27 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)0])), (&(kept_ptr[(first_27 + (int64_t)1976)])));
    #pragma unroll
    for (int64_t i_14 = (int64_t)0; i_14 < (int64_t)8; ++i_14) {
      #pragma unroll
      for (int64_t j_13 = (int64_t)0; j_13 < (int64_t)4; ++j_13) {
        sums_ptr[((i_14 * (int64_t)4) + j_13)] = (sums_ptr[((i_14 * (int64_t)4) + j_13)] + (a_ptr[(i_14 + (int64_t)8)] * b_ptr[(j_13 + (int64_t)4)]));
      }
    }
    int64_t first_28 = (from + row);
    opsgen_move16((&(a_ptr[(int64_t)8])), (&(kept_ptr[(first_28 + (int64_t)984)])));
    opsgen_move16((&(a_ptr[(int64_t)12])), (&(kept_ptr[(first_28 + (int64_t)1000)])));
    int64_t first_29 = (from + column);
    opsgen_move16((&(b_ptr[(int64_t)4])), (&(kept_ptr[(first_29 + (int64_t)2040)])));
    #pragma unroll
    for (int64_t i_15 = (int64_t)0; i_15 < (int64_t)8; ++i_15) {
      #pragma unroll
      for (int64_t j_14 = (int64_t)0; j_14 < (int64_t)4; ++j_14) {
        sums_ptr[((i_15 * (int64_t)4) + j_14)] = (sums_ptr[((i_15 * (int64_t)4) + j_14)] + (a_ptr[i_15] * b_ptr[j_14]));
      }
    }
    int64_t k_8 = (following + quick);
    alignas(16) float values_ptr_4[4];
    #pragma unroll
    for (int64_t lane_5 = (int64_t)0; lane_5 < (int64_t)4; ++lane_5) {
      int64_t k_9 = (k_8 + lane_5);
      float x_2 = x_raw_ptr[lane_5];
      values_ptr_4[lane_5] = x_2;
    }
    int64_t line_4 = ((to + ((quick * (int64_t)64) + ((quick / (int64_t)4) * (int64_t)8))) + slow);
    kept_ptr[line_4] = values_ptr_4[(int64_t)0];
    kept_ptr[(line_4 + (int64_t)64)] = values_ptr_4[(int64_t)1];
    kept_ptr[(line_4 + (int64_t)128)] = values_ptr_4[(int64_t)2];
    kept_ptr[(line_4 + (int64_t)192)] = values_ptr_4[(int64_t)3];
    int64_t k_10 = (following + quick);
    alignas(16) float values_ptr_5[4];
    #pragma unroll
    for (int64_t lane_6 = (int64_t)0; lane_6 < (int64_t)4; ++lane_6) {
      int64_t k_11 = (k_10 + lane_6);
      float x_3 = x_raw_ptr[((int64_t)4 + lane_6)];
      values_ptr_5[lane_6] = x_3;
    }
    int64_t line_5 = ((to + ((quick * (int64_t)64) + ((quick / (int64_t)4) * (int64_t)8))) + slow_1);
    kept_ptr[line_5] = values_ptr_5[(int64_t)0];
    kept_ptr[(line_5 + (int64_t)64)] = values_ptr_5[(int64_t)1];
    kept_ptr[(line_5 + (int64_t)128)] = values_ptr_5[(int64_t)2];
    kept_ptr[(line_5 + (int64_t)192)] = values_ptr_5[(int64_t)3];
    int64_t k_12 = (following + quick_1);
    alignas(16) float values_ptr_6[4];
    #pragma unroll
    for (int64_t lane_7 = (int64_t)0; lane_7 < (int64_t)4; ++lane_7) {
      int64_t k_13 = (k_12 + lane_7);
      float weight_2 = weight_raw_ptr[lane_7];
      values_ptr_6[lane_7] = weight_2;
    }
    int64_t line_6 = (((to + (int64_t)1056) + ((quick_1 * (int64_t)64) + ((quick_1 / (int64_t)4) * (int64_t)8))) + slow_2);
    kept_ptr[line_6] = values_ptr_6[(int64_t)0];
    kept_ptr[(line_6 + (int64_t)64)] = values_ptr_6[(int64_t)1];
    kept_ptr[(line_6 + (int64_t)128)] = values_ptr_6[(int64_t)2];
    kept_ptr[(line_6 + (int64_t)192)] = values_ptr_6[(int64_t)3];
    int64_t k_14 = (following + quick_1);
    alignas(16) float values_ptr_7[4];
    #pragma unroll
    for (int64_t lane_8 = (int64_t)0; lane_8 < (int64_t)4; ++lane_8) {
      int64_t k_15 = (k_14 + lane_8);
      float weight_3 = weight_raw_ptr[((int64_t)4 + lane_8)];
      values_ptr_7[lane_8] = weight_3;
    }
    int64_t line_7 = (((to + (int64_t)1056) + ((quick_1 * (int64_t)64) + ((quick_1 / (int64_t)4) * (int64_t)8))) + slow_3);
    kept_ptr[line_7] = values_ptr_7[(int64_t)0];
    kept_ptr[(line_7 + (int64_t)64)] = values_ptr_7[(int64_t)1];
    kept_ptr[(line_7 + (int64_t)128)] = values_ptr_7[(int64_t)2];
    kept_ptr[(line_7 + (int64_t)192)] = values_ptr_7[(int64_t)3];
    __syncthreads();
    int next = (reading_ptr[(int64_t)0] + 2112);
    reading_ptr[(int64_t)0] = ((next == 4224) ? 0 : next);
    int64_t from_1 = ((int64_t)reading_ptr[(int64_t)0]);
    int64_t first_30 = (from_1 + row);
    opsgen_move16((&(a_ptr[(int64_t)0])), (&(kept_ptr[first_30])));
    opsgen_move16((&(a_ptr[(int64_t)4])), (&(kept_ptr[(first_30 + (int64_t)16)])));
    int64_t first_31 = (from_1 + column);
    opsgen_move16((&(b_ptr[(int64_t)0])), (&(kept_ptr[(first_31 + (int64_t)1056)])));
    #pragma unroll
    for (int64_t i_16 = (int64_t)0; i_16 < (int64_t)8; ++i_16) {
      #pragma unroll
      for (int64_t j_15 = (int64_t)0; j_15 < (int64_t)4; ++j_15) {
        sums_ptr[((i_16 * (int64_t)4) + j_15)] = (sums_ptr[((i_16 * (int64_t)4) + j_15)] + (a_ptr[(i_16 + (int64_t)8)] * b_ptr[(j_15 + (int64_t)4)]));
      }
    }
    int next_1 = (writing_ptr[(int64_t)0] + 2112);
    writing_ptr[(int64_t)0] = ((next_1 == 4224) ? 0 : next_1);
  }
  #pragma unroll
  for (int64_t i_17 = (int64_t)0; i_17 < (int64_t)8; ++i_17) {
    int64_t row_1 = ((first_row + row) + (((i_17 / (int64_t)4) * (int64_t)16) + (i_17 % (int64_t)4)));
    if (row_1 < rows) {
      int64_t column_1 = (first_column + column);
      if (column_1 < out_features) {
        if ((aligned != 0) && ((column_1 + (int64_t)4) <= out_features)) {
          alignas(16) float bias_strip_ptr[4];
          opsgen_move16((&(bias_strip_ptr[(int64_t)0])), (&(input_bias_data[column_1])));
          alignas(16) float out_out_ptr[4];
          #pragma unroll
          for (int64_t lane_9 = (int64_t)0; lane_9 < (int64_t)4; ++lane_9) {
            int64_t out_features_1 = (column_1 + lane_9);
            float t = sums_ptr[((i_17 * (int64_t)4) + (out_features_1 - column_1))];
            float bias = bias_strip_ptr[lane_9];
            float t_1 = (t + bias);
            float t_2 = (0x1p-1f/*5.000000e-01*/ * t_1);
            float t_3 = (t_1 * 0x1.6a09e667f3bcdp-1f/*7.071068e-01*/);
            float t_4 = erff(t_3);
            float t_5 = (0x1p+0f/*1.000000e+00*/ + t_4);
            float t_6 = (t_2 * t_5);
            out_out_ptr[lane_9] = t_6;
          }
          int64_t at_8 = ((row_1 * result_out_rows_stride) + column_1);
          opsgen_move16((&(result_out_data[at_8])), (&(out_out_ptr[(int64_t)0])));
        } else {
          int64_t left = min((int64_t)4, (out_features - column_1));
          for (int64_t lane_10 = (int64_t)0; lane_10 < left; ++lane_10) {
            int64_t out_features_2 = (column_1 + lane_10);
            float t_7 = sums_ptr[((i_17 * (int64_t)4) + (out_features_2 - column_1))];
            float bias_1 = input_bias_data[out_features_2];
            float t_8 = (t_7 + bias_1);
            float t_9 = (0x1p-1f/*5.000000e-01*/ * t_8);
            float t_10 = (t_8 * 0x1.6a09e667f3bcdp-1f/*7.071068e-01*/);
            float t_11 = erff(t_10);
            float t_12 = (0x1p+0f/*1.000000e+00*/ + t_11);
            float t_13 = (t_9 * t_12);
            result_out_data[((row_1 * result_out_rows_stride) + out_features_2)] = t_13;
          }
        }
      }
    }
  }
}
