extern "C" __global__ void __launch_bounds__(256, 1) gelu_sm_80_g0_map(int64_t rows, ushort* __restrict__ input_x_data, ushort* __restrict__ result_out_data) {
  int aligned = ((int)(((opsgen_address((&(input_x_data[(int64_t)0]))) & (int64_t)15) | (opsgen_address((&(result_out_data[(int64_t)0]))) & (int64_t)15)) == (int64_t)0));
  int64_t strips = ((rows + (int64_t)7) / (int64_t)8);
  int64_t first = ((((int64_t)((int)blockIdx.x)) * (int64_t)256) + ((int64_t)((int)threadIdx.x)));
  int64_t step = (opsgen_blocks() * (int64_t)256);
  for (int64_t task = first; task < strips; task += step) {
    int64_t start = (task * (int64_t)8);
    if ((aligned != 0) && ((start + (int64_t)8) <= rows)) {
      alignas(16) ushort x_strip_ptr[8];
      opsgen_move16((&(x_strip_ptr[(int64_t)0])), (&(input_x_data[start])));
      alignas(16) ushort out_out_ptr[8];
      #pragma unroll
      for (int64_t lane = (int64_t)0; lane < (int64_t)8; ++lane) {
        int64_t rows_1 = (start + lane);
          uint v_ = ((uint)x_strip_ptr[lane]) << (uint)16;
        float x = opsgen_as<float>(v_);
        float t = (0x1p-1f/*5.000000e-01*/ * x);
        float t_1 = (x * 0x1.6a09e667f3bcdp-1f/*7.071068e-01*/);
        float t_2 = erff(t_1);
        float t_3 = (0x1p+0f/*1.000000e+00*/ + t_2);
        float t_4 = (t * t_3);
        uint t_5 = opsgen_as<uint>(t_4);
        out_out_ptr[lane] = ((ushort)(((opsgen_as<int>(t_4) & 2147483647) > 2139095040) ? ((t_5 >> (uint)16) | (uint)64) : (((t_5 + (uint)32767) + ((t_5 >> (uint)16) & (uint)1)) >> (uint)16)));
      }
      opsgen_move16((&(result_out_data[start])), (&(out_out_ptr[(int64_t)0])));
    } else {
      int64_t left = min((int64_t)8, (rows - start));
      for (int64_t lane_1 = (int64_t)0; lane_1 < left; ++lane_1) {
        int64_t rows_2 = (start + lane_1);
          uint v__1 = ((uint)input_x_data[rows_2]) << (uint)16;
        float x_1 = opsgen_as<float>(v__1);
        float t_6 = (0x1p-1f/*5.000000e-01*/ * x_1);
        float t_7 = (x_1 * 0x1.6a09e667f3bcdp-1f/*7.071068e-01*/);
        float t_8 = erff(t_7);
        float t_9 = (0x1p+0f/*1.000000e+00*/ + t_8);
        float t_10 = (t_6 * t_9);
        uint t_11 = opsgen_as<uint>(t_10);
        result_out_data[rows_2] = ((ushort)(((opsgen_as<int>(t_10) & 2147483647) > 2139095040) ? ((t_11 >> (uint)16) | (uint)64) : (((t_11 + (uint)32767) + ((t_11 >> (uint)16) & (uint)1)) >> (uint)16)));
      }
    }
  }
}
