import { expect, it } from 'vitest';
import { unknownTool } from '../../../src/core/catalogue/tools/warnings.ts';

it('the error names the nearest of many tools first and counts the rest', () => {
  const known = Array.from({ length: 200 }, (_, at) => `tool_${at}`);
  const { code, detail } = unknownTool('tool_150x', known);
  expect(code).toBe('invalid_request');
  expect(detail).toMatch(
    /^tool: this server has no tool "tool_150x"\. Did you mean "tool_150"\? It has "tool_150", /,
  );
  expect(detail).toContain(' and 180 more. ');
});

it('long names are shortened, and invisible characters removed', () => {
  const { detail } = unknownTool('x'.repeat(500), [`${'y'.repeat(500)}\u202e`]);
  expect(detail.length).toBeLessThan(400);
  expect(detail).not.toContain('\u202e');
});
