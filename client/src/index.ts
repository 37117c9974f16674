export * from './client.ts';
export {
  isSwitchboardError,
  SessionFailed,
  SwitchboardError,
  unwrap,
  type ErrorCode,
  type Problem,
  type Session,
} from './errors.ts';
export type { components, operations, paths } from './openapi.ts';
export { UserTokens, type Tokens, type TokenSet, type TokenStore } from './tokens.ts';
