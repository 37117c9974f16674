import type { Request, Response, Router } from 'express';
import type { Core } from '../../core/core.ts';
import type { Actor } from '../../core/access/audit.ts';
import { SwitchboardError } from '../../errors.ts';
import { localsOf } from '../http/request.ts';
import { isFormToken, type Cookies } from './cookies.ts';
import { readForm, sameOriginOnly, type Fields } from './forms.ts';

/** What the routes of the pages work with. */
export interface Site {
  readonly core: Core;
  readonly cookies: Cookies;
  /** The path below which this service is reached from outside: '' or such as `/switchboard`. */
  readonly base: string;
}

interface Visit<Segment extends string> {
  readonly request: Request;
  readonly response: Response;
  /** The named segments of the path. */
  readonly params: Readonly<Record<Segment, string>>;
  readonly actor: Actor;
}

interface Answers<Segment extends string> {
  /** Changes nothing, so that link previews may look; answers HEAD, too. */
  readonly get?: (visit: Visit<Segment>) => Promise<void>;
  /** The callback, which is the one GET that changes something: HEAD is refused. */
  readonly onlyGet?: (visit: Visit<Segment>) => Promise<void>;
  /** A form of ours. */
  readonly post?: (visit: Visit<Segment>, fields: Fields) => Promise<void>;
}

type SegmentsOf<Path extends string> = Path extends `${string}:${infer Name}/${infer Rest}`
  ? Name | SegmentsOf<Rest>
  : Path extends `${string}:${infer Name}`
    ? Name
    : never;

/** What a path answers; to any other method 405. */
export function at<Path extends string>(
  router: Router,
  path: Path,
  { get, onlyGet, post }: Answers<SegmentsOf<Path>>,
): void {
  const allowed = [...(get ? ['GET', 'HEAD'] : []), ...(onlyGet ? ['GET'] : []), ...(post ? ['POST'] : [])];
  const visitOf = (request: Request, response: Response): Visit<SegmentsOf<Path>> => {
    const { requestId } = localsOf(response);
    const { ip } = request;
    const params = request.params as Record<SegmentsOf<Path>, string>;
    return { request, response, params, actor: { requestId, ...(ip === undefined ? {} : { ip }) } };
  };
  const route = router.route(path as string);
  route.all((request, response, next) => {
    if (allowed.includes(request.method)) return next();
    response.set('Allow', allowed.join(', '));
    throw new SwitchboardError('method_not_allowed', `${request.method} is not possible here.`);
  });
  const show = get ?? onlyGet;
  if (show) route.get((request, response) => show(visitOf(request, response)));
  if (!post) return;
  route.post(sameOriginOnly, async (request, response) =>
    post(visitOf(request, response), await readForm(request, response)),
  );
}

/** The hidden field of a form that acts for the holder of a cookie. @throws SwitchboardError `host_not_allowed`. */
export function requireToken(fields: Fields, cookie: string): void {
  if (!isFormToken(fields['token'], cookie))
    throw new SwitchboardError('host_not_allowed', 'The form did not come from a page of this service.');
}

export const noSuchPage = (): SwitchboardError =>
  new SwitchboardError('route_not_found', 'There is no such page.');
