import * as fc from 'fast-check';
import { ODD_JSON, ODD_NAMES } from './values.ts';

/** A JSON value whose leaves are text as it is sent, and whose members can have one name twice. */
type Node = string | { readonly items: readonly Node[] } | { readonly members: readonly Member[] };
type Member = readonly [name: string, value: Node];

function nodeOf(value: unknown): Node {
  if (Array.isArray(value)) return { items: value.map(nodeOf) };
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return { members: Object.entries(value).map(([name, one]): Member => [name, nodeOf(one)]) };
}

function textOf(node: Node): string {
  if (typeof node === 'string') return node;
  if ('items' in node) return `[${node.items.map(textOf).join(',')}]`;
  return `{${node.members.map(([name, value]) => `${JSON.stringify(name)}:${textOf(value)}`).join(',')}}`;
}

interface Edit {
  readonly kind: 'replace' | 'remove' | 'add' | 'double' | 'wrap';
  /** Which place, counted modulo those there are. */
  readonly at: number;
  readonly odd: string;
  readonly name: string;
}

const edits: fc.Arbitrary<Edit> = fc.record({
  kind: fc.constantFrom('replace', 'replace', 'replace', 'remove', 'add', 'double', 'wrap'),
  at: fc.nat(1_000),
  odd: fc.constantFrom(...ODD_JSON),
  name: fc.constantFrom(...ODD_NAMES, 'unknown'),
});

/** The value with one thing wrong, as JSON text. */
export const nearly = (values: fc.Arbitrary<unknown>): fc.Arbitrary<string> =>
  fc.tuple(values, edits).map(([value, edit]) => textOf(edited(nodeOf(value), edit)));

function edited(root: Node, edit: Edit): Node {
  if (edit.kind === 'replace' || edit.kind === 'wrap') {
    return replaced(root, { left: edit.at % count(root) }, old =>
      edit.kind === 'wrap' ? { items: [old] } : edit.odd,
    );
  }
  if (typeof root === 'string' || !('members' in root)) return edit.odd;
  const { members } = root;
  const at = edit.at % Math.max(1, members.length);
  const [name = edit.name] = members[at] ?? [];
  if (edit.kind === 'remove') return { members: members.toSpliced(at, 1) };
  if (edit.kind === 'add') return { members: [...members, [edit.name, edit.odd]] };
  const twin: Member = [name, edit.odd];
  return { members: edit.at % 2 === 0 ? [twin, ...members] : [...members, twin] };
}

const childrenOf = (node: Node): readonly Node[] => {
  if (typeof node === 'string') return [];
  return 'items' in node ? node.items : node.members.map(([, value]) => value);
};

const count = (node: Node): number => 1 + childrenOf(node).reduce((sum, child) => sum + count(child), 0);

/** @param place counts down over the nodes, parents before children; at 0 it is that node's turn. */
function replaced(node: Node, place: { left: number }, change: (old: Node) => Node): Node {
  if (place.left-- === 0) return change(node);
  if (typeof node === 'string') return node;
  if ('items' in node) return { items: node.items.map(one => replaced(one, place, change)) };
  return { members: node.members.map(([name, value]): Member => [name, replaced(value, place, change)]) };
}
