import { CookieJar } from 'tough-cookie';

/** One answer as the end user sees it; redirects are answers too. */
export interface Page {
  readonly status: number;
  readonly url: string;
  readonly headers: Headers;
  readonly html: string;
}

/** The page a sign-in ended on. `trace` (methods, paths and statuses, no query strings) is for the message of a failed test only. */
export interface SignedIn extends Page {
  readonly trace: readonly string[];
}

export interface Authorization {
  /** Default `alice`; the provider takes any. */
  readonly login?: string;
  /** Default false. True: signs in, and cancels where consent is asked. */
  readonly deny?: boolean;
  /** The first redirect target for which this is true is returned instead of fetched. */
  readonly stopAt: (url: string) => boolean;
}

export interface Submission {
  /** Which form of the page; default the first. */
  readonly formIndex?: number;
  /** What the user typed, and the name and value of the button pressed. */
  readonly fields?: Readonly<Record<string, string>>;
}

const MAX_HOPS = 20;

/** An end user with a browser but no screen: cookies as a browser keeps them, forms, and redirects one at a time. No scripts, no CSP, no SameSite. */
export class UserAgent {
  readonly trace: string[] = [];
  // As browsers do, loopback counts as a secure place to set Secure cookies from.
  readonly #jar = new CookieJar(undefined, { allowSecureOnLocal: true });
  readonly #reachedAt: (url: string) => string;

  /** @param reachedAt where an address is reached that nobody serves here, as behind a proxy */
  constructor(reachedAt: (url: string) => string = url => url) {
    this.#reachedAt = reachedAt;
  }

  /** One request; a redirect is returned, not followed. */
  get(url: string, headers: Readonly<Record<string, string>> = {}): Promise<Page> {
    return this.#request(url, { headers });
  }

  /** Sends a form of the page with its hidden inputs, as pressing its button would. One request; a redirect is returned. */
  submit(page: Page, { formIndex = 0, fields = {} }: Submission = {}): Promise<Page> {
    const form = formsOf(page.html)[formIndex];
    if (!form) throw new Error(this.#story(`no form ${formIndex} on`, page));
    const target = new URL(form.action, page.url);
    const body = new URLSearchParams({ ...form.inputs, ...fields });
    if (form.method === 'GET') {
      target.search = body.toString();
      return this.get(target.href);
    }
    return this.#request(target.href, { method: 'POST', body, headers: { origin: originSentFrom(page) } });
  }

  /** Goes through redirects to the first page that is none. */
  async follow(page: Page): Promise<Page> {
    let current = page;
    for (let hop = 0; hop < MAX_HOPS; hop++) {
      const next = redirectOf(current);
      if (next === undefined) return current;
      current = await this.get(next);
    }
    throw new Error(this.#story('too many redirects, last', current));
  }

  /** Goes from the authorization URL through the provider's login and consent pages; returns the callback URL, not fetched. */
  async authorize(
    authUrl: string,
    { login = 'alice', deny = false, stopAt }: Authorization,
  ): Promise<string> {
    let page = await this.get(authUrl);
    for (let hop = 0; hop < MAX_HOPS; hop++) {
      const next = redirectOf(page);
      if (next === undefined) page = await this.#answerProvider(page, login, deny);
      else if (stopAt(next)) return next;
      else page = await this.get(next);
    }
    throw new Error(this.#story('too many hops, last', page));
  }

  /** As `authorize`, then fetches the callback and follows it to its final page. */
  async signIn(authUrl: string, authorization: Authorization): Promise<SignedIn> {
    const callback = await this.authorize(authUrl, authorization);
    return { ...(await this.follow(await this.get(callback))), trace: this.trace };
  }

  /** Opens a link to one of our pages and presses its button; returns where that leads, which is not fetched. */
  async open(link: string): Promise<string> {
    const gone = await this.submit(await this.get(link));
    const next = redirectOf(gone);
    if (next === undefined) throw new Error(this.#story('the button led nowhere on', gone));
    return next;
  }

  /** Opens a link, presses the button, and goes where a server that asks nothing sends it, to the page that it ends on. */
  async connect(link: string): Promise<Page> {
    return this.follow(await this.get(await this.open(link)));
  }

  /** oidc-provider's development pages: a form with `prompt` login or consent, and a link that cancels. */
  #answerProvider(page: Page, login: string, deny: boolean): Promise<Page> {
    const asked = formsOf(page.html)[0]?.inputs['prompt'];
    if (asked === 'login') return this.submit(page, { fields: { login, password: 'any' } });
    if (asked !== 'consent') throw new Error(this.#story('neither login nor consent is asked on', page));
    const cancel = /href="([^"]+\/abort)"/.exec(page.html)?.[1];
    return deny && cancel !== undefined ? this.get(new URL(cancel, page.url).href) : this.submit(page);
  }

  async #request(url: string, init: RequestInit): Promise<Page> {
    const headers = new Headers(init.headers);
    const cookie = await this.#jar.getCookieString(url);
    if (cookie !== '') headers.set('cookie', cookie);
    const response = await fetch(this.#reachedAt(url), { ...init, headers, redirect: 'manual' });
    for (const setCookie of response.headers.getSetCookie())
      await this.#jar.setCookie(setCookie, url, { ignoreError: true });
    this.trace.push(`${init.method ?? 'GET'} ${new URL(url).pathname} -> ${response.status}`);
    return { status: response.status, url, headers: response.headers, html: await response.text() };
  }

  #story(what: string, { url, status, html }: Page): string {
    const text = html
      .replaceAll(/<style[\s\S]*?<\/style>|<[^>]+>/g, ' ')
      .replaceAll(/\s+/g, ' ')
      .trim();
    return `${what} ${new URL(url).pathname} (${status} ${text.slice(0, 300)}) after ${this.trace.join(', ')}`;
  }
}

function redirectOf({ status, headers, url }: Page): string | undefined {
  const location = headers.get('location');
  return location !== null && status >= 300 && status < 400 ? new URL(location, url).href : undefined;
}

/** A browser hides the origin of a form on a page that asks for no referrer, also from its own server (Fetch, "append a request Origin header"). */
const originSentFrom = ({ headers, url }: Page) =>
  headers.get('referrer-policy') === 'no-referrer' ? 'null' : new URL(url).origin;

interface Form {
  readonly action: string;
  readonly method: string;
  /** What is sent when nothing is typed or ticked. */
  readonly inputs: Readonly<Record<string, string>>;
}

/** The forms of a page, as far as plain inputs make them up: no select, no textarea. */
function formsOf(html: string): Form[] {
  return Array.from(html.matchAll(/<form\b([^>]*)>([\s\S]*?)<\/form>/gi), ([, opening = '', inside = '']) => {
    const { action = '', method = 'get' } = attributesOf(opening);
    const inputs = Array.from(inside.matchAll(/<input\b([^>]*)>/gi), match => attributesOf(match[1] ?? ''))
      .filter(({ name, type = 'text', checked }) => {
        if (name === undefined || type === 'submit') return false;
        return checked !== undefined || !['checkbox', 'radio'].includes(type);
      })
      .map(({ name = '', value = '' }) => [name, value]);
    return { action, method: method.toUpperCase(), inputs: Object.fromEntries(inputs) };
  });
}

type Attributes = Partial<Record<'action' | 'method' | 'name' | 'value' | 'type' | 'checked', string>>;

const attributesOf = (tag: string): Attributes =>
  Object.fromEntries(
    Array.from(
      tag.matchAll(/([\w-]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?/g),
      ([, name = '', double, single, bare]) => [name.toLowerCase(), decode(double ?? single ?? bare ?? '')],
    ),
  );

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

const decode = (text: string) =>
  text.replaceAll(
    /&(?:#x([\da-f]+)|#(\d+)|(\w+));/gi,
    (whole, hex?: string, decimal?: string, name?: string) => {
      if (name !== undefined) return ENTITIES[name] ?? whole;
      return String.fromCodePoint(hex === undefined ? Number(decimal) : Number.parseInt(hex, 16));
    },
  );
