/** Shared by the kernel's files: the width of the model and arithmetic on four floats at a time. */

/** The width of a hidden state, in floats. */
export const HIDDEN: usize = 384;
/** Bytes of one hidden state. */
export const HIDDEN_BYTES: usize = HIDDEN << 2;

export function sum4(v: v128): f32 {
  return (
    f32x4.extract_lane(v, 0) +
    f32x4.extract_lane(v, 1) +
    (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3))
  );
}

export function max4(v: v128): f32 {
  return max(
    max(f32x4.extract_lane(v, 0), f32x4.extract_lane(v, 1)),
    max(f32x4.extract_lane(v, 2), f32x4.extract_lane(v, 3)),
  );
}

/** e^x for x <= 0, relative error about 2e-7 (Cephes expf: reduce by ln 2, polynomial of degree 5, scale by 2^n). */
export function expOfNegative(argument: v128): v128 {
  const x = f32x4.max(argument, f32x4.splat(-87));
  const n = f32x4.nearest(f32x4.mul(x, f32x4.splat(1.4426950408889634)));
  const high = f32x4.sub(x, f32x4.mul(n, f32x4.splat(0.693359375)));
  const r = f32x4.add(high, f32x4.mul(n, f32x4.splat(2.1219444e-4)));
  let p = f32x4.splat(1.98756915e-4);
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.3981999507e-3));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(8.3334519073e-3));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(4.1665795894e-2));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.6666665459e-1));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(5.0000001201e-1));
  p = f32x4.add(f32x4.add(f32x4.mul(f32x4.mul(p, r), r), r), f32x4.splat(1));
  return f32x4.mul(p, i32x4.shl(i32x4.add(i32x4.trunc_sat_f32x4_s(n), i32x4.splat(127)), 23));
}
