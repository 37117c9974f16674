import express, { type IRouter, type Request, type RequestHandler, type Response } from 'express';
import type { Actor } from '../../core/access/audit.ts';
import type { Core } from '../../core/core.ts';
import { SwitchboardError } from '../../errors.ts';
import { localsOf } from '../http/request.ts';
import { isFormToken, type Cookies } from './cookies.ts';

/** Where routes are added: a router, or the whole app. */
export type Routes = Pick<IRouter, 'route'>;

/** The dependencies of the pages' routes. */
export interface Site {
  readonly core: Core;
  readonly cookies: Cookies;
  /** The public path prefix of this service: '' or for instance `/switchboard`. */
  readonly base: string;
}

export interface PageRequest<Segment extends string> {
  readonly request: Request;
  readonly response: Response;
  /** The named segments of the path. */
  readonly params: Readonly<Record<Segment, string>>;
  readonly actor: Actor;
}

interface Answers<Segment extends string> {
  /** Must change nothing but the browser's cookies, because of link previews; also handles HEAD. */
  readonly get?: (page: PageRequest<Segment>) => Promise<void> | void;
  /** For the callback, the only GET that changes something: HEAD is refused. */
  readonly onlyGet?: (page: PageRequest<Segment>) => Promise<void>;
  /** Handles one of our forms. */
  readonly post?: (page: PageRequest<Segment>, fields: Fields) => Promise<void>;
}

type SegmentsOf<Path extends string> = Path extends `${string}:${infer Name}/${infer Rest}`
  ? Name | SegmentsOf<Rest>
  : Path extends `${string}:${infer Name}`
    ? Name
    : never;

/** Serves a path; other methods are refused with 405. */
export function route<Path extends string>(
  router: Routes,
  path: Path,
  { get, onlyGet, post }: Answers<SegmentsOf<Path>>,
): void {
  const allowed = [...(get ? ['GET', 'HEAD'] : []), ...(onlyGet ? ['GET'] : []), ...(post ? ['POST'] : [])];
  const requestOf = (request: Request, response: Response): PageRequest<SegmentsOf<Path>> => {
    const { requestId } = localsOf(response);
    const { ip } = request;
    const params = request.params as Record<SegmentsOf<Path>, string>;
    return { request, response, params, actor: { requestId, ...(ip === undefined ? {} : { ip }) } };
  };
  const served = router.route(path as string);
  served.all((request, response, next) => {
    if (allowed.includes(request.method)) return next();
    response.set('Allow', allowed.join(', '));
    throw new SwitchboardError('method_not_allowed', `${request.method} is not allowed here.`);
  });
  const show = get ?? onlyGet;
  if (show) served.get((request, response) => show(requestOf(request, response)));
  if (!post) return;
  served.post(sameOriginOnly, async (request, response) =>
    post(requestOf(request, response), await readForm(request, response)),
  );
}

/**
 * Checks the hidden token of a form that acts for the owner of a cookie, and returns the cookie.
 * @throws SwitchboardError `host_not_allowed`, also without the cookie
 */
export function requireToken(fields: Fields, cookie: string | undefined): string {
  if (cookie === undefined || !isFormToken(fields['token'], cookie))
    throw new SwitchboardError('host_not_allowed', 'The form did not come from a page of this service.');
  return cookie;
}

export const noSuchPage = (): SwitchboardError =>
  new SwitchboardError('route_not_found', 'There is no such page.');

const FORM_TYPE = 'application/x-www-form-urlencoded';
/** Room for the values that a server may take. */
const MAX_FORM_BYTES = 64 * 1024;

const parse = express.urlencoded({
  extended: false,
  inflate: false,
  limit: MAX_FORM_BYTES,
  parameterLimit: 64,
  type: () => true,
});

/**
 * Refuses a form sent from another site (Fetch Metadata). Old browsers do not report the origin; there the form's token, or
 * the secret in the link, protects the user.
 */
const sameOriginOnly: RequestHandler = (request, _response, next) => {
  const site = request.headers['sec-fetch-site'];
  if (site === undefined || site === 'same-origin' || site === 'none') return next();
  throw new SwitchboardError('host_not_allowed', 'refused a form sent from another site');
};

/** Returns a signal that aborts when the browser goes away. */
export function leaving(response: Response): AbortSignal {
  const left = new AbortController();
  response.once('close', () => left.abort());
  return left.signal;
}

export type Fields = Readonly<Record<string, string | undefined>>;

/** Reads the fields of a form; repeated ones count as missing. @throws SwitchboardError 413, 415 or 400 */
async function readForm(request: Request, response: Response): Promise<Fields> {
  const [type] = (request.headers['content-type'] ?? '').toLowerCase().split(';');
  if (type?.trim() !== FORM_TYPE) throw new SwitchboardError('unsupported_media_type', `Send ${FORM_TYPE}.`);
  const failure = await new Promise<unknown>(resolve => parse(request, response, resolve));
  if (failure !== undefined) throw formError(failure);
  const fields = Object.entries((request.body ?? {}) as Record<string, unknown>);
  return Object.fromEntries(
    fields.filter((field): field is [string, string] => typeof field[1] === 'string'),
  );
}

function formError(failure: unknown): SwitchboardError {
  const status = failure instanceof Error && 'status' in failure ? failure.status : undefined;
  const extras = { cause: failure };
  if (status === 413) return new SwitchboardError('payload_too_large', 'The form is too large.', extras);
  if (status === 415)
    return new SwitchboardError('unsupported_media_type', 'The form must be sent as UTF-8.', extras);
  return new SwitchboardError('invalid_request', 'The form could not be read.', extras);
}
