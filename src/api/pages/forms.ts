import express, { type Request, type RequestHandler, type Response } from 'express';
import { SwitchboardError } from '../../errors.ts';

const FORM_TYPE = 'application/x-www-form-urlencoded';
const MAX_FORM_BYTES = 8 * 1024;

const parse = express.urlencoded({
  extended: false,
  inflate: false,
  limit: MAX_FORM_BYTES,
  parameterLimit: 16,
  type: () => true,
});

/**
 * Refuses what another site sends in this browser's name (Fetch Metadata). Old browsers do not say where a request comes
 * from: there the form's token, or the secret in the link, has to do.
 */
export const sameOriginOnly: RequestHandler = (request, _response, next) => {
  const site = request.headers['sec-fetch-site'];
  if (site === undefined || site === 'same-origin' || site === 'none') return next();
  throw new SwitchboardError('host_not_allowed', `a form was sent from another site`);
};

export type Fields = Readonly<Record<string, string | undefined>>;

/** The fields of a form; one that comes twice counts as missing. @throws SwitchboardError 413, 415 or 400. */
export async function readForm(request: Request, response: Response): Promise<Fields> {
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
    return new SwitchboardError('unsupported_media_type', 'The form must be plain UTF-8.', extras);
  return new SwitchboardError('invalid_request', 'The form could not be read.', extras);
}
