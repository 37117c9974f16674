import { expOfNegative, HIDDEN_BYTES, max4, sum4 } from './simd.as';

/** Bytes of one row of the fused query | key | value projection. */
const QKV_BYTES: usize = HIDDEN_BYTES * 3;
const HEADS: i32 = 12;
/** Bytes of one head's slice of a row: 32 floats, eight SIMD vectors. */
const HEAD_BYTES: usize = 128;
/** 1 / sqrt(32), the attention scale. */
const ATTENTION_SCALE: f32 = 0.17677669529663687;

/** Softmax in place over `padded` scores (a multiple of 4; the tail after `count` is filled in here), not yet divided by the sum it returns. */
function softmax(scores: usize, count: i32, padded: i32): f32 {
  for (let j = count; j < padded; j++) store<f32>(scores + ((<usize>j) << 2), -1e30);
  const end = scores + ((<usize>padded) << 2);
  let highest = v128.load(scores);
  for (let p = scores + 16; p < end; p += 16) highest = f32x4.max(highest, v128.load(p));
  const top = f32x4.splat(max4(highest));
  let total = f32x4.splat(0);
  for (let p = scores; p < end; p += 16) {
    const e = expOfNegative(f32x4.sub(v128.load(p), top));
    v128.store(p, e);
    total = f32x4.add(total, e);
  }
  return sum4(total);
}

/**
 * Self-attention of one text: `qkv` points at its first row of the fused projection [count, 3 * HIDDEN], `out` at its
 * first row of the context [count, HIDDEN]; `scores` is scratch for `count` floats rounded up to a multiple of 4.
 */
export function attention(qkv: usize, count: i32, scores: usize, out: usize): void {
  const padded = (count + 3) & ~3;
  const scale = f32x4.splat(ATTENTION_SCALE);
  for (let head = 0; head < HEADS; head++) {
    const queries = qkv + <usize>head * HEAD_BYTES;
    const keys = queries + HIDDEN_BYTES;
    const values = keys + HIDDEN_BYTES;
    for (let i = 0; i < count; i++) {
      const q = queries + <usize>i * QKV_BYTES;
      const q0 = f32x4.mul(v128.load(q), scale);
      const q1 = f32x4.mul(v128.load(q, 16), scale);
      const q2 = f32x4.mul(v128.load(q, 32), scale);
      const q3 = f32x4.mul(v128.load(q, 48), scale);
      const q4 = f32x4.mul(v128.load(q, 64), scale);
      const q5 = f32x4.mul(v128.load(q, 80), scale);
      const q6 = f32x4.mul(v128.load(q, 96), scale);
      const q7 = f32x4.mul(v128.load(q, 112), scale);
      let k = keys;
      for (let j = 0; j < count; j++) {
        const even = f32x4.add(
          f32x4.add(f32x4.mul(q0, v128.load(k)), f32x4.mul(q2, v128.load(k, 32))),
          f32x4.add(f32x4.mul(q4, v128.load(k, 64)), f32x4.mul(q6, v128.load(k, 96))),
        );
        const odd = f32x4.add(
          f32x4.add(f32x4.mul(q1, v128.load(k, 16)), f32x4.mul(q3, v128.load(k, 48))),
          f32x4.add(f32x4.mul(q5, v128.load(k, 80)), f32x4.mul(q7, v128.load(k, 112))),
        );
        store<f32>(scores + ((<usize>j) << 2), sum4(f32x4.add(even, odd)));
        k += QKV_BYTES;
      }
      const share = f32x4.splat(<f32>1 / softmax(scores, count, padded));
      let c0 = f32x4.splat(0);
      let c1 = f32x4.splat(0);
      let c2 = f32x4.splat(0);
      let c3 = f32x4.splat(0);
      let c4 = f32x4.splat(0);
      let c5 = f32x4.splat(0);
      let c6 = f32x4.splat(0);
      let c7 = f32x4.splat(0);
      let v = values;
      for (let j = 0; j < count; j++) {
        const w = v128.load32_splat(scores + ((<usize>j) << 2));
        c0 = f32x4.add(c0, f32x4.mul(w, v128.load(v)));
        c1 = f32x4.add(c1, f32x4.mul(w, v128.load(v, 16)));
        c2 = f32x4.add(c2, f32x4.mul(w, v128.load(v, 32)));
        c3 = f32x4.add(c3, f32x4.mul(w, v128.load(v, 48)));
        c4 = f32x4.add(c4, f32x4.mul(w, v128.load(v, 64)));
        c5 = f32x4.add(c5, f32x4.mul(w, v128.load(v, 80)));
        c6 = f32x4.add(c6, f32x4.mul(w, v128.load(v, 96)));
        c7 = f32x4.add(c7, f32x4.mul(w, v128.load(v, 112)));
        v += QKV_BYTES;
      }
      const o = out + <usize>i * HIDDEN_BYTES + <usize>head * HEAD_BYTES;
      v128.store(o, f32x4.mul(c0, share));
      v128.store(o, f32x4.mul(c1, share), 16);
      v128.store(o, f32x4.mul(c2, share), 32);
      v128.store(o, f32x4.mul(c3, share), 48);
      v128.store(o, f32x4.mul(c4, share), 64);
      v128.store(o, f32x4.mul(c5, share), 80);
      v128.store(o, f32x4.mul(c6, share), 96);
      v128.store(o, f32x4.mul(c7, share), 112);
    }
  }
}
