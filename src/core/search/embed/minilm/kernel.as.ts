/**
 * The arithmetic of all-MiniLM-L6-v2 and of the vector scan, in AssemblyScript with fixed-width SIMD (no relaxed SIMD: every
 * CPU must produce the same bits, because vectors outlive the machine that computed them).
 *
 * Compiled by `scripts/build-kernel.ts` to `kernel.wasm`. Every pointer is a byte offset into the imported memory. The kernel
 * allocates and checks nothing: `model.ts` and `vectors.ts` own the layout. Unless stated otherwise, a matrix is
 * row-major f32.
 */

import { expOfNegative, HIDDEN, HIDDEN_BYTES, max4, sum4 } from './simd.as';

export { attention } from './attention.as';

const LAYER_NORM_EPSILON: f32 = 1e-12;

/** Loads four signed bytes at `address` as floats. */
function loadBytes(address: usize): v128 {
  return f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(v128.load32_zero(address))));
}

/**
 * Packs an int8 [inner, columns] weight into panels of eight columns, [columns / 8][inner / 2][8][2], the order in which `gemm`
 * reads them. They stay 8-bit: as floats they would not fit into a processor's cache, and a short text costs little more than
 * reading them.
 */
export function pack(bytes: usize, inner: i32, columns: i32, out: usize): void {
  for (let column = 0; column < columns; column += 8) {
    let upper = bytes + <usize>column;
    for (let k = 0; k < inner; k += 2) {
      const lower = upper + <usize>columns;
      for (let c: usize = 0; c < 8; c++) {
        store<u8>(out, load<u8>(upper + c));
        store<u8>(out, load<u8>(lower + c), 1);
        out += 2;
      }
      upper = lower + <usize>columns;
    }
  }
}

/** Writes the word vectors of `count` token ids (i32) from the int8 table, with one scale per word, to `out` [count, HIDDEN]. */
export function embed(ids: usize, count: i32, table: usize, scales: usize, out: usize): void {
  for (let i = 0; i < count; i++) {
    const id = <usize>load<u32>(ids + ((<usize>i) << 2));
    const scale = v128.load32_splat(scales + (id << 2));
    let word = table + id * HIDDEN;
    const end = word + HIDDEN;
    while (word < end) {
      v128.store(out, f32x4.mul(loadBytes(word), scale));
      word += 4;
      out += 16;
    }
  }
}

/** The largest quantized activation: a sum of 1,536 products with 8-bit weights still fits into 32 bits. */
const LARGEST: f32 = 8191;

/** Returns four floats times `factor`, rounded to i32. */
function rounded(address: usize, factor: v128): v128 {
  return i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(v128.load(address), factor)));
}

/**
 * Quantizes a [rows, inner] to i16 `out` [rows, inner], with one scale per row in `scales`. `inner` is a multiple of 8. A row of zeros
 * gives zeros.
 */
export function quantize(a: usize, rows: i32, inner: i32, out: usize, scales: usize): void {
  const rowBytes: usize = (<usize>inner) << 2;
  for (let row = 0; row < rows; row++) {
    const end = a + rowBytes;
    let highest = f32x4.splat(0);
    for (let p = a; p < end; p += 16) highest = f32x4.max(highest, f32x4.abs(v128.load(p)));
    const largest = max4(highest);
    store<f32>(scales, largest / LARGEST);
    const factor = f32x4.splat(largest > 0 ? LARGEST / largest : 0);
    while (a < end) {
      v128.store(out, i16x8.narrow_i32x4_s(rounded(a, factor), rounded(a + 16, factor)));
      a += 32;
      out += 16;
    }
    scales += 4;
  }
}

/** Writes four sums as floats: sums * rowScale * scales + bias. */
function scaled(out: usize, sums: v128, rowScale: v128, scales: v128, bias: v128): void {
  v128.store(out, f32x4.add(f32x4.mul(f32x4.convert_i32x4_s(sums), f32x4.mul(rowScale, scales)), bias));
}

/**
 * Computes out [rows, columns] = a * aScales * panels * scales + bias, for i16 `a` [rows, inner] of `quantize`; `scales` has one
 * per column. `rows` is a multiple of 4, `inner` of 2, `columns` of 8. Sums are exact, so a text's vector depends neither on its
 * batch nor on the order of additions.
 */
export function gemm(
  a: usize,
  aScales: usize,
  rows: i32,
  inner: i32,
  panels: usize,
  columns: i32,
  scales: usize,
  bias: usize,
  out: usize,
): void {
  const rowBytes: usize = (<usize>inner) << 1;
  const outBytes: usize = (<usize>columns) << 2;
  const panelBytes = (<usize>inner) << 3;
  const zero = i32x4.splat(0);
  for (let column = 0; column < columns; column += 8) {
    const leftScale = v128.load(scales + ((<usize>column) << 2));
    const rightScale = v128.load(scales + ((<usize>column) << 2), 16);
    const left = v128.load(bias + ((<usize>column) << 2));
    const right = v128.load(bias + ((<usize>column) << 2), 16);
    for (let row = 0; row < rows; row += 4) {
      let a0 = a + <usize>row * rowBytes;
      let a1 = a0 + rowBytes;
      let a2 = a1 + rowBytes;
      let a3 = a2 + rowBytes;
      const end = a1;
      let p = panels;
      let c00 = zero;
      let c01 = zero;
      let c10 = zero;
      let c11 = zero;
      let c20 = zero;
      let c21 = zero;
      let c30 = zero;
      let c31 = zero;
      while (a0 < end) {
        const x = v128.load_ext<i8>(p);
        const y = v128.load_ext<i8>(p, 8);
        // Two numbers of each row, for two rows of four columns.
        let s = v128.load32_splat(a0);
        c00 = i32x4.add(c00, i32x4.dot_i16x8_s(s, x));
        c01 = i32x4.add(c01, i32x4.dot_i16x8_s(s, y));
        s = v128.load32_splat(a1);
        c10 = i32x4.add(c10, i32x4.dot_i16x8_s(s, x));
        c11 = i32x4.add(c11, i32x4.dot_i16x8_s(s, y));
        s = v128.load32_splat(a2);
        c20 = i32x4.add(c20, i32x4.dot_i16x8_s(s, x));
        c21 = i32x4.add(c21, i32x4.dot_i16x8_s(s, y));
        s = v128.load32_splat(a3);
        c30 = i32x4.add(c30, i32x4.dot_i16x8_s(s, x));
        c31 = i32x4.add(c31, i32x4.dot_i16x8_s(s, y));
        p += 16;
        a0 += 4;
        a1 += 4;
        a2 += 4;
        a3 += 4;
      }
      const rowScales = aScales + ((<usize>row) << 2);
      let o = out + <usize>row * outBytes + ((<usize>column) << 2);
      let rowScale = v128.load32_splat(rowScales);
      scaled(o, c00, rowScale, leftScale, left);
      scaled(o + 16, c01, rowScale, rightScale, right);
      o += outBytes;
      rowScale = v128.load32_splat(rowScales, 4);
      scaled(o, c10, rowScale, leftScale, left);
      scaled(o + 16, c11, rowScale, rightScale, right);
      o += outBytes;
      rowScale = v128.load32_splat(rowScales, 8);
      scaled(o, c20, rowScale, leftScale, left);
      scaled(o + 16, c21, rowScale, rightScale, right);
      o += outBytes;
      rowScale = v128.load32_splat(rowScales, 12);
      scaled(o, c30, rowScale, leftScale, left);
      scaled(o + 16, c31, rowScale, rightScale, right);
    }
    panels += panelBytes;
  }
}

/** Computes x [rows, HIDDEN] = layer norm of (x + residual) * gamma + beta, row by row. */
export function addAndNormalize(x: usize, residual: usize, rows: i32, gamma: usize, beta: usize): void {
  const width = f32x4.splat(<f32>HIDDEN);
  for (let row = 0; row < rows; row++) {
    let total = f32x4.splat(0);
    for (let d: usize = 0; d < HIDDEN_BYTES; d += 16) {
      const v = f32x4.add(v128.load(x + d), v128.load(residual + d));
      v128.store(x + d, v);
      total = f32x4.add(total, v);
    }
    const mean = f32x4.div(f32x4.splat(sum4(total)), width);
    let squares = f32x4.splat(0);
    for (let d: usize = 0; d < HIDDEN_BYTES; d += 16) {
      const v = f32x4.sub(v128.load(x + d), mean);
      squares = f32x4.add(squares, f32x4.mul(v, v));
    }
    const variance = sum4(squares) / <f32>HIDDEN;
    const factor = f32x4.splat(<f32>1 / sqrt<f32>(variance + LAYER_NORM_EPSILON));
    for (let d: usize = 0; d < HIDDEN_BYTES; d += 16) {
      const v = f32x4.mul(f32x4.mul(f32x4.sub(v128.load(x + d), mean), factor), v128.load(gamma + d));
      v128.store(x + d, f32x4.add(v, v128.load(beta + d)));
    }
    x += HIDDEN_BYTES;
    residual += HIDDEN_BYTES;
  }
}

/**
 * Applies GELU in place, x / 2 * (1 + erf(x / sqrt 2)); erf by Abramowitz & Stegun 7.1.26, absolute error below 2e-7. `count`
 * is a multiple of 4.
 */
export function gelu(x: usize, count: i32): void {
  const one = f32x4.splat(1);
  const end = x + ((<usize>count) << 2);
  while (x < end) {
    const v = v128.load(x);
    const z = f32x4.mul(f32x4.abs(v), f32x4.splat(0.7071067811865476));
    const t = f32x4.div(one, f32x4.add(one, f32x4.mul(z, f32x4.splat(0.3275911))));
    let p = f32x4.splat(1.061405429);
    p = f32x4.add(f32x4.mul(p, t), f32x4.splat(-1.453152027));
    p = f32x4.add(f32x4.mul(p, t), f32x4.splat(1.421413741));
    p = f32x4.add(f32x4.mul(p, t), f32x4.splat(-0.284496736));
    p = f32x4.add(f32x4.mul(p, t), f32x4.splat(0.254829592));
    const erf = f32x4.sub(one, f32x4.mul(f32x4.mul(p, t), expOfNegative(f32x4.neg(f32x4.mul(z, z)))));
    // erf is odd and z was |x|: give it the sign of x.
    const signed = v128.bitselect(v, erf, i32x4.splat(0x80000000));
    v128.store(x, f32x4.mul(f32x4.mul(v, f32x4.splat(0.5)), f32x4.add(one, signed)));
    x += 16;
  }
}

/** Computes out [HIDDEN] = the mean of x [rows, HIDDEN] over its rows, scaled to unit length. */
export function pool(x: usize, rows: i32, out: usize): void {
  let squares = f32x4.splat(0);
  for (let d: usize = 0; d < HIDDEN_BYTES; d += 16) {
    let total = f32x4.splat(0);
    let p = x + d;
    for (let row = 0; row < rows; row++) {
      total = f32x4.add(total, v128.load(p));
      p += HIDDEN_BYTES;
    }
    v128.store(out + d, total);
    squares = f32x4.add(squares, f32x4.mul(total, total));
  }
  // The division by the number of rows cancels out in the normalization.
  const factor = f32x4.splat(<f32>1 / sqrt<f32>(max<f32>(sum4(squares), 1e-24)));
  for (let d: usize = 0; d < HIDDEN_BYTES; d += 16) {
    v128.store(out + d, f32x4.mul(v128.load(out + d), factor));
  }
}

/**
 * Computes out[i] = scale * scales[i] * (query . row i), for `count` int8 rows of `dimensions` bytes (a multiple of 16, below
 * 133,000 so that the i32 sum cannot overflow) and one int8 query.
 */
export function scan8(
  query: usize,
  rows: usize,
  scales: usize,
  count: i32,
  dimensions: i32,
  scale: f32,
  out: usize,
): void {
  const end = query + <usize>dimensions;
  for (let i = 0; i < count; i++) {
    let low = i32x4.splat(0);
    let high = i32x4.splat(0);
    for (let q = query; q < end; q += 16) {
      const x = v128.load(q);
      const y = v128.load(rows);
      low = i32x4.add(low, i32x4.dot_i16x8_s(i16x8.extend_low_i8x16_s(x), i16x8.extend_low_i8x16_s(y)));
      high = i32x4.add(high, i32x4.dot_i16x8_s(i16x8.extend_high_i8x16_s(x), i16x8.extend_high_i8x16_s(y)));
      rows += 16;
    }
    const sum = i32x4.add(low, high);
    const dot =
      i32x4.extract_lane(sum, 0) +
      i32x4.extract_lane(sum, 1) +
      i32x4.extract_lane(sum, 2) +
      i32x4.extract_lane(sum, 3);
    store<f32>(out, <f32>dot * scale * load<f32>(scales));
    scales += 4;
    out += 4;
  }
}
