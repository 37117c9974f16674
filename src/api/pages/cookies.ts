import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { CookieOptions, Request, Response } from 'express';
import { isSecret, newSecret, sha256 } from '../../platform/ids.ts';

type WithHeaders = Pick<IncomingMessage, 'headers'>;

const MANAGE_COOKIE_MS = 15 * 60_000;

/**
 * The cookies of the pages, each a secret of one browser. Over https their names start with `__Host-`, so that no other
 * host or path can set them. Over plain http, which is for loopback, browsers would refuse such names.
 */
export class Cookies {
  readonly #isSecure: boolean;
  readonly #prefix: string;

  constructor(isSecure: boolean) {
    this.#isSecure = isSecure;
    this.#prefix = isSecure ? '__Host-sb_' : 'sb_';
  }

  /** Returns the secret of the browser in which a sign-in started. */
  browser(request: Request): string | undefined {
    return this.#read(request, 'browser');
  }

  /** Sets the secret of this browser. Concurrent sign-ins share one, so that a later one does not end an earlier. */
  ensureBrowser(request: Request, response: Response): string {
    const secret = this.browser(request) ?? newSecret('web');
    // Lax, because the provider redirects the browser from its own site.
    response.cookie(`${this.#prefix}browser`, secret, this.#options('lax'));
    return secret;
  }

  /** Returns the secret of the browser in which a link to the connections page was opened. */
  manager(request: Request): string | undefined {
    return this.#read(request, 'manage');
  }

  setManager(response: Response, secret: string): void {
    const options = { ...this.#options('strict'), maxAge: MANAGE_COOKIE_MS };
    response.cookie(`${this.#prefix}manage`, secret, options);
  }

  clearManager(response: Response): void {
    response.clearCookie(`${this.#prefix}manage`, this.#options('strict'));
  }

  /** Returns the sign-in to the page of connections that this browser has begun. It is sealed, and so not checked here. */
  pageSignIn(request: Request): string | undefined {
    return this.#value(request, 'sign_in');
  }

  setPageSignIn(response: Response, sealed: string, maxAge: number): void {
    // Lax, because the provider redirects the browser from its own site.
    response.cookie(`${this.#prefix}sign_in`, sealed, { ...this.#options('lax'), maxAge });
  }

  clearPageSignIn(response: Response): void {
    response.clearCookie(`${this.#prefix}sign_in`, this.#options('lax'));
  }

  /** Returns the secret of the browser in which an operator is signed in to the console. */
  operator(request: WithHeaders): string | undefined {
    return this.#read(request, 'console');
  }

  /** Lives as long as the browser; the session itself ends earlier. */
  setOperator(response: Response, secret: string): void {
    response.cookie(`${this.#prefix}console`, secret, this.#options('strict'));
  }

  clearOperator(response: Response): void {
    response.clearCookie(`${this.#prefix}console`, this.#options('strict'));
  }

  #read(request: WithHeaders, name: string): string | undefined {
    const secret = this.#value(request, name);
    return secret !== undefined && isSecret(secret, 'web') ? secret : undefined;
  }

  #value({ headers }: WithHeaders, name: string): string | undefined {
    const start = `${this.#prefix}${name}=`;
    const pair = headers.cookie?.split(/; */).find(one => one.startsWith(start));
    return pair?.slice(start.length);
  }

  #options(sameSite: 'lax' | 'strict'): CookieOptions {
    return { httpOnly: true, secure: this.#isSecure, sameSite, path: '/' };
  }
}

/** Returns the token that proves that a form came from our page: only that page and the cookie's owner know it. */
export const formToken = (cookie: string): string =>
  Buffer.from(sha256(`csrf|${cookie}`)).toString('base64url');

export function isFormToken(token: string | undefined, cookie: string): boolean {
  const given = Buffer.from(token ?? '');
  const right = Buffer.from(formToken(cookie));
  return given.length === right.length && timingSafeEqual(given, right);
}
