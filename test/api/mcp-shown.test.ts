import { describe, expect, it } from 'vitest';
import { leanSchema } from '../../src/api/mcp/shown.ts';

describe('leanSchema', () => {
  it.each([
    [
      'dialects, ids and titles',
      { $schema: 'x', $id: 'y', $comment: 'z', title: 'T', type: 'object' },
      { type: 'object' },
    ],
    ['closed objects', { type: 'object', additionalProperties: false }, { type: 'object' }],
    ['nothing of open ones', { additionalProperties: true }, { additionalProperties: true }],
    [
      'nothing that says what further members are like',
      { additionalProperties: { type: 'string', title: 'T' } },
      { additionalProperties: { type: 'string' } },
    ],
    [
      'empty lists and texts',
      { type: 'object', properties: {}, required: [], description: '' },
      { type: 'object' },
    ],
    [
      'the null of what is optional',
      { anyOf: [{ type: 'string', title: 'T' }, { type: 'null' }], default: null, title: 'Q' },
      { type: 'string' },
    ],
    [
      'no null that is not the default',
      { anyOf: [{ type: 'string' }, { type: 'null' }] },
      { anyOf: [{ type: 'string' }, { type: 'null' }] },
    ],
    [
      'no choice among several',
      { anyOf: [{ type: 'string' }, { type: 'integer' }, { type: 'null' }], default: null },
      { anyOf: [{ type: 'string' }, { type: 'integer' }, { type: 'null' }] },
    ],
    [
      'no property of such a name',
      { properties: { title: { title: 'T', type: 'string' }, $id: {}, default: { default: null } } },
      { properties: { title: { type: 'string' }, $id: {}, default: {} } },
    ],
    [
      'no dependency of such a name',
      { dependentRequired: { title: ['a'] } },
      { dependentRequired: { title: ['a'] } },
    ],
    [
      'no data',
      {
        enum: [{ title: 1 }, null],
        const: { title: 2 },
        default: { title: 3 },
        examples: [{ title: 4 }],
        required: ['title'],
      },
      {
        enum: [{ title: 1 }, null],
        const: { title: 2 },
        default: { title: 3 },
        examples: [{ title: 4 }],
        required: ['title'],
      },
    ],
    ['no schema that is true', { properties: { a: true } }, { properties: { a: true } }],
  ])('leaves out %s', (_what, schema, lean) => {
    expect(leanSchema(schema)).toEqual(lean);
  });
});
