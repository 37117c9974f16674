import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createNgramEmbedder, ngramVector } from '../../../../src/core/search/embed/ngrams.ts';

const cosine = (a: string, b: string) => {
  const other = ngramVector(b);
  return ngramVector(a).reduce((sum, component, i) => sum + component * (other[i] ?? 0), 0);
};

describe('ngramVector', () => {
  it('has unit length for any text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), text => {
        expect(Math.hypot(...ngramVector(text))).toBeCloseTo(1, 5);
      }),
    );
    expect(Math.hypot(...ngramVector(''))).toBeCloseTo(1, 5);
    expect(Math.hypot(...ngramVector('\uD800'))).toBeCloseTo(1, 5);
  });

  it('ignores case, accents and the way words are joined', () => {
    expect(cosine('createPullRequest', 'create_pull_request')).toBeCloseTo(1, 5);
    expect(cosine('Résumé', 'resume')).toBeCloseTo(1, 5);
  });

  it('puts inflections and typing errors nearer than other words', () => {
    expect(cosine('list calendar events', 'lists calender event')).toBeGreaterThan(0.4);
    expect(cosine('list calendar events', 'refund a payment')).toBeLessThan(0.2);
  });

  it('tells texts apart', () => {
    expect(cosine('weather forecast', 'stock price')).toBeLessThan(0.2);
    expect(cosine('天気', '航班')).toBeLessThan(0.2);
  });
});

describe('createNgramEmbedder', () => {
  it('returns vectors in the order of the texts', async () => {
    const embedder = createNgramEmbedder();
    expect(embedder).toMatchObject({ id: 'char-ngrams-v1', dimensions: 384 });
    expect(await embedder.embed(['one', 'two'], 'index')).toEqual([ngramVector('one'), ngramVector('two')]);
    await embedder.close();
    await embedder.close();
  });
});
