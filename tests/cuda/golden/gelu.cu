extern "C" __global__ void __launch_bounds__(128, 12) gelu_sm_80_g0_map(ushort* __restrict__ result_out_data, ushort* __restrict__ input_x_data, int64_t rows) {
  int64_t strips = ((rows + (int64_t)7) / (int64_t)8);
  int64_t tasks = ((strips + (int64_t)255) / (int64_t)256);
  int64_t step = opsgen_blocks();
  for (int64_t task = ((int64_t)((int)blockIdx.x)); task < tasks; task += step) {
    int64_t first = ((task * (int64_t)256) + ((int64_t)((int)threadIdx.x)));
    alignas(16) uint x_strip_ptr[8];
    int64_t start = (first * (int64_t)8);
    int whole = ((int)((first < strips) && ((start + (int64_t)8) <= rows)));
    if (whole != 0) {
      opsgen_move16((&(x_strip_ptr[(int64_t)0])), (&(input_x_data[start])));
    }
    int64_t strip = (first + (int64_t)128);
    int64_t start_1 = (strip * (int64_t)8);
    int whole_1 = ((int)((strip < strips) && ((start_1 + (int64_t)8) <= rows)));
    if (whole_1 != 0) {
      opsgen_move16((&(x_strip_ptr[(int64_t)4])), (&(input_x_data[start_1])));
    }
    if (whole != 0) {
      alignas(16) float out_out_ptr[8];
      #pragma unroll
      for (int64_t lane = (int64_t)0; lane < (int64_t)8; ++lane) {
        int64_t rows_1 = (start + lane);
        float x = opsgen_of_words((&(x_strip_ptr[(int64_t)0])), lane);
        float t = opsgen_half_gated_erf(x, 0x1p-1f/*5.000000e-01*/, 0x1.6a09e667f3bcdp-1f/*7.071068e-01*/);
        out_out_ptr[lane] = t;
      }
      alignas(16) uint out_words_ptr[4];
      opsgen_round_bfloat16<8>((&(out_words_ptr[(int64_t)0])), (&(out_out_ptr[(int64_t)0])));
      opsgen_move16((&(result_out_data[start])), (&(out_words_ptr[(int64_t)0])));
    } else {
      if (first < strips) {
        int64_t left = min((int64_t)8, (rows - start));
        for (int64_t lane_1 = (int64_t)0; lane_1 < left; ++lane_1) {
          int64_t rows_2 = (start + lane_1);
            uint v_ = ((uint)input_x_data[rows_2]) << (uint)16;
          float x_1 = opsgen_as<float>(v_);
          float t_1 = opsgen_half_gated_erf(x_1, 0x1p-1f/*5.000000e-01*/, 0x1.6a09e667f3bcdp-1f/*7.071068e-01*/);
          result_out_data[rows_2] = opsgen_bfloat16(t_1);
        }
      }
    }
    if (whole_1 != 0) {
      alignas(16) float out_out_ptr_1[8];
      #pragma unroll
      for (int64_t lane_2 = (int64_t)0; lane_2 < (int64_t)8; ++lane_2) {
        int64_t rows_3 = (start_1 + lane_2);
        float x_2 = opsgen_of_words((&(x_strip_ptr[(int64_t)0])), ((int64_t)8 + lane_2));
        float t_2 = opsgen_half_gated_erf(x_2, 0x1p-1f/*5.000000e-01*/, 0x1.6a09e667f3bcdp-1f/*7.071068e-01*/);
        out_out_ptr_1[lane_2] = t_2;
      }
      alignas(16) uint out_words_ptr_1[4];
      opsgen_round_bfloat16<8>((&(out_words_ptr_1[(int64_t)0])), (&(out_out_ptr_1[(int64_t)0])));
      opsgen_move16((&(result_out_data[start_1])), (&(out_words_ptr_1[(int64_t)0])));
    } else {
      if (strip < strips) {
        int64_t left_1 = min((int64_t)8, (rows - start_1));
        for (int64_t lane_3 = (int64_t)0; lane_3 < left_1; ++lane_3) {
          int64_t rows_4 = (start_1 + lane_3);
            uint v__1 = ((uint)input_x_data[rows_4]) << (uint)16;
          float x_3 = opsgen_as<float>(v__1);
          float t_3 = opsgen_half_gated_erf(x_3, 0x1p-1f/*5.000000e-01*/, 0x1.6a09e667f3bcdp-1f/*7.071068e-01*/);
          result_out_data[rows_4] = opsgen_bfloat16(t_3);
        }
      }
    }
  }
}
