import { SwitchboardError } from '../../errors.ts';
import type { Scope } from './caller.ts';

/** @throws SwitchboardError `insufficient_scope` when the key does not carry the scope. */
export function requireScope(identity: { readonly scopes: ReadonlySet<Scope> }, scope: Scope): void {
  if (identity.scopes.has(scope)) return;
  throw new SwitchboardError(
    'insufficient_scope',
    `This API key lacks the scope "${scope}". Use a key that has it.`,
  );
}
