import { setTimeout as delay } from 'node:timers/promises';
import { sanitise } from '../platform/sanitize.ts';
import { CommandFailed, type AdminClient } from './admin-client.ts';
import { openInBrowser } from './browser.ts';
import { DEFAULT_TENANT, tenant, tenantOf, UsageError, type Command, type Invocation } from './command.ts';
import { plural, table, type Io } from './terminal.ts';
import { firstCall, storedTools } from './tool-commands.ts';

interface Field {
  readonly name: string;
  readonly description?: string;
  readonly is_required: boolean;
  readonly is_secret: boolean;
  readonly default?: string;
  readonly choices?: readonly string[];
}

/** The values that a server takes. */
interface Form {
  readonly name: string;
  readonly host: string;
  readonly key_url: string | null;
  readonly fields: readonly Field[];
}

interface Made {
  readonly fingerprint: string;
  readonly tools: number | null;
  readonly problem: string | null;
}

const connect: Command = {
  args: ['SERVER'],
  options: {
    header: {
      type: 'string',
      help: 'Header that carries the key, if it is not `Authorization` and the catalogue entry names none.',
    },
    scope: {
      type: 'string',
      multiple: true,
      help: 'Scope to ask for besides those that the server names. Can be repeated.',
    },
    key: { type: 'boolean', help: 'Asks for a key even if the server has a sign-in.' },
    'for-users': {
      type: 'boolean',
      help: 'Also used for end users who have no connection of their own.',
    },
    tenant,
  },
  help: 'Connects a server: opens its sign-in in a browser, or stores the key that it requires. From then on, all calls of the tenant use the connection, except those for an end user. A key is asked for on the terminal, or read from stdin.',
  changes: 'existing',
  async run(invocation) {
    const { io, options } = invocation;
    const over = new AbortController();
    // Reading starts at once: if stdin has a key, a sign-in should not begin.
    const stdin = io.ask ? undefined : new Stdin(io, over.signal);
    try {
      const isForKey = options['key'] === true || options['header'] !== undefined;
      return (isForKey ? undefined : await signIn(invocation, stdin)) ?? (await storeKey(invocation, stdin));
    } finally {
      over.abort();
    }
  },
};

/** The input on stdin, for scripts that cannot answer a prompt. */
class Stdin {
  readonly text: Promise<string>;
  /** True once something has come. */
  isGiven = false;

  /** @param over lets go of stdin, which may never end */
  constructor(io: Io, over: AbortSignal) {
    this.text = io.input(over).then(text => {
      this.isGiven = text.trim() !== '';
      return text.trim();
    });
    this.text.catch(() => {});
  }
}

async function storeKey(
  { admin, io, args: [server = ''], options }: Invocation,
  stdin: Stdin | undefined,
): Promise<{ json: unknown; text: string }> {
  if (options['scope'] !== undefined)
    throw new UsageError(`${server} takes a key. --scope is for servers with a sign-in`);
  const query = new URLSearchParams({ server_id: server });
  const form = (await admin.request('GET', `/connections/form?${query.toString()}`)) as Form;
  const put = async (values: Record<string, string>) => {
    io.status?.(`Asking ${form.host} for its tools …`);
    const json = {
      tenant: tenantOf(options),
      server_id: server,
      values,
      header: options['header'],
      for_users: options['for-users'],
    };
    return (await admin.request('PUT', '/connections', { json }).finally(() => io.status?.(''))) as Made;
  };
  const made = io.ask
    ? await putAnswers(form, io, io.ask, put)
    : await put(readFrom((await stdin?.text) ?? '', form));
  if (made.problem !== null) {
    const text = `Stored the key of ${server}, but could not try it: ${made.problem}`;
    return { json: made, text };
  }
  const tools = (await readTools(admin, server, options)) ?? made.tools;
  return { json: made, text: await connected(admin, server, tools, options) };
}

/** How often a person may enter what the server refuses. */
const MAX_TRIES = 3;

async function putAnswers(
  form: Form,
  io: Io,
  ask: NonNullable<Io['ask']>,
  put: (values: Record<string, string>) => Promise<Made>,
): Promise<Made> {
  for (let tries = 1; ; tries++) {
    const values = await askFor(form, io, ask);
    try {
      return await put(values);
    } catch (error) {
      const isRefused = error instanceof CommandFailed && error.code === 'credentials_rejected';
      if (!isRefused || tries === MAX_TRIES) throw error;
      io.complain(`${error.message} Try again, or stop with Ctrl-C.`);
    }
  }
}

const SECOND_MS = 1_000;
/** A terminal shows that something is going on. */
const SPINNER = ['|', '/', '-', '\\'];

interface Session {
  readonly kind: 'oauth' | 'credentials';
  readonly session_id: string;
  readonly auth_url: string;
}

/**
 * Signs in at a server in a browser. Returns undefined for a server that takes a key instead.
 * @throws CommandFailed if the sign-in fails, takes too long, or is given up with Ctrl-C; UsageError if a key was given for it
 */
async function signIn(
  { admin, io, args: [server = ''], options }: Invocation,
  stdin: Stdin | undefined,
): Promise<{ json: unknown; text: string } | undefined> {
  const tenantId = tenantOf(options);
  const { scope: scopes, 'for-users': forUsers } = options;
  const wanted = { tenant: tenantId, server_id: server, for_users: forUsers, scopes };
  const session = (await admin.request('POST', '/connections/session', { json: wanted })) as Session;
  if (session.kind === 'credentials') return undefined;
  const refuseKey = () => {
    if (!stdin?.isGiven) return;
    throw new UsageError(
      `${server} has a sign-in, so the key on stdin was not stored. To store it instead of signing in, add --key. To sign in, leave stdin empty`,
    );
  };
  refuseKey();
  if (admin.alone !== undefined)
    throw new CommandFailed(
      `${server} has a sign-in that ends in a browser, which needs the running server. Start it with npm start, then repeat the command.`,
    );
  const stopped = new AbortController();
  process.once('SIGINT', () => stopped.abort());
  io.complain(`Sign in to ${server} here, within five minutes:\n${session.auth_url}`);
  if (io.status) openInBrowser(session.auth_url);
  const query = new URLSearchParams({ tenant: tenantId, session_id: session.session_id });
  await untilSignedIn({ admin, io, query, stopped: stopped.signal, check: refuseKey });
  const tools = await readTools(admin, server, options);
  const json = { server_id: server, kind: 'oauth', tools: tools ?? null };
  return { json, text: await connected(admin, server, tools, options) };
}

interface Waiting {
  readonly admin: AdminClient;
  readonly io: Io;
  /** Names the session. */
  readonly query: URLSearchParams;
  /** Aborts with Ctrl-C. */
  readonly stopped: AbortSignal;
  /** Is called every second, and may throw. */
  readonly check: () => void;
}

/** @throws CommandFailed if the sign-in fails, takes too long, or is given up with Ctrl-C */
async function untilSignedIn({ admin, io, query, stopped, check }: Waiting): Promise<void> {
  for (let round = 0; ; round++) {
    const { status, error } = (await admin.request('GET', `/connections/session?${query.toString()}`)) as {
      status: 'pending' | 'complete' | 'error';
      error?: string;
    };
    if (status !== 'pending') io.status?.('');
    if (status === 'error') throw new CommandFailed(`Not connected: ${reasonOf(error)}`);
    if (status === 'complete') return;
    check();
    io.status?.(`${SPINNER[round % SPINNER.length]} waiting for the browser`);
    await delay(SECOND_MS, undefined, { signal: stopped }).catch(() => {
      io.status?.('');
      const text = 'Stopped waiting. Whoever has the link can still use it until it expires.';
      throw new CommandFailed(text, 'interrupted');
    });
  }
}

/** Reasons for a failed sign-in as the one reads them who typed the command, by the code before the server's text. */
const REASONS: Readonly<Record<string, string>> = {
  access_denied: 'access was not granted.',
  session_expired: 'the sign-in was not finished within five minutes. Run the command again.',
};

function reasonOf(error = ''): string {
  const mark = error.indexOf(': ');
  const code = error.slice(0, Math.max(0, mark));
  return (Object.hasOwn(REASONS, code) ? REASONS[code] : undefined) ?? error.slice(mark < 0 ? 0 : mark + 2);
}

/** Puts a server's tools into the catalogue, as search finds a server by them. Returns their number, if they could be read. */
async function readTools(
  admin: AdminClient,
  server: string,
  options: Invocation['options'],
): Promise<number | undefined> {
  // Accounts of other tenants are not shown.
  if (tenantOf(options) !== DEFAULT_TENANT) return undefined;
  const path = `/catalogue/${encodeURIComponent(server)}/tools`;
  const read = (await admin.request('POST', path).catch(() => undefined)) as { tools: number } | undefined;
  return read?.tools;
}

async function connected(
  admin: AdminClient,
  server: string,
  tools: number | null | undefined,
  options: Invocation['options'],
): Promise<string> {
  const done = `Connected ${server}.${tools == null ? '' : ` It lists ${tools} ${plural(tools, 'tool')}.`}`;
  const tenantId = tenantOf(options);
  // Commands call for the tenant `local` only.
  if (tenantId !== DEFAULT_TENANT) return `${done}\nThe API keys of the tenant ${tenantId} can call it now.`;
  const known = await storedTools(admin, server);
  return `${done}\n${firstCall(server, known) ?? `See its tools: npx switchboard tools ${server}`}`;
}

async function askFor(form: Form, io: Io, ask: NonNullable<Io['ask']>): Promise<Record<string, string>> {
  io.complain(`${sanitise(form.name)} (${form.host}) asks for:`);
  if (form.key_url !== null) io.complain(`Get a key at ${form.key_url}`);
  const values: Record<string, string> = {};
  for (const field of form.fields) {
    if (field.description !== undefined) io.complain(sanitise(field.description, 500));
    if (field.choices) io.complain(`One of ${choicesOf(field)}`);
    const optional = field.is_required ? '' : ' (optional)';
    const preset = field.default === undefined ? '' : ` [${field.default}]`;
    const question = `${field.name}${optional}${preset}: `;
    const value = await answerTo(field, () => ask(question, field.is_secret), io);
    if (value !== '') values[field.name] = value;
  }
  return values;
}

/** Asks until there is an answer that the server can take. @throws CommandFailed at Ctrl-C */
async function answerTo(field: Field, ask: () => Promise<string>, io: Io): Promise<string> {
  for (;;) {
    const value = await ask().then(
      text => text.trim(),
      () => {
        throw new CommandFailed('Cancelled. Nothing was stored.', 'interrupted');
      },
    );
    if (value === '' && (!field.is_required || field.default !== undefined)) return value;
    if (value !== '' && (field.choices?.includes(value) ?? true)) return value;
    io.complain(field.choices ? `Enter one of ${choicesOf(field)}.` : `Enter a value for ${field.name}.`);
  }
}

const choicesOf = ({ choices = [] }: Field) => choices.map(one => sanitise(one)).join(', ');

/** Reads the only value, or the only required one, or lines such as `token=abc`. @throws UsageError */
function readFrom(text: string, { fields }: Form): Record<string, string> {
  if (text === '') throw new UsageError(`give ${namesOf(fields)} on stdin, or run this on a terminal`);
  const required = fields.filter(field => field.is_required);
  const [only, ...more] = fields.length === 1 ? fields : required;
  if (only && more.length === 0 && !fields.some(({ name }) => text.startsWith(`${name}=`)))
    return { [only.name]: text };
  return Object.fromEntries(
    text.split('\n').map(line => {
      const mark = line.indexOf('=');
      if (mark < 1) throw new UsageError(`stdin must have lines such as NAME=VALUE, for ${namesOf(fields)}`);
      return [line.slice(0, mark).trim(), line.slice(mark + 1).trim()];
    }),
  );
}

const namesOf = (fields: readonly Field[]) => fields.map(({ name }) => name).join(', ');

interface ConnectionInfo {
  readonly kind: 'credentials' | 'oauth' | 'provider';
  readonly provider: string | null;
  readonly server_id: string | null;
  readonly account: string | null;
  readonly fingerprint: string | null;
  readonly issuer: string | null;
  readonly for_users: boolean;
  readonly status: string;
  readonly scopes: readonly string[];
  readonly connected_at: string;
  readonly last_used_at: string | null;
}

async function connectionsOf(
  admin: AdminClient,
  holder: Readonly<Record<string, string>>,
): Promise<{ connections: readonly ConnectionInfo[] }> {
  const query = new URLSearchParams(holder).toString();
  return (await admin.request('GET', `/connections?${query}`)) as { connections: ConnectionInfo[] };
}

const list: Command = {
  args: [],
  options: { user: { type: 'string', help: 'User of the tenant, whose own connections to list.' }, tenant },
  help: 'Lists the connections that a tenant shares, or those of one user.',
  async run({ admin, options }) {
    const { user } = options;
    const answer = await connectionsOf(admin, {
      tenant: tenantOf(options),
      ...(user === undefined ? {} : { user_id: String(user) }),
    });
    const rows = answer.connections.map(one => [
      one.server_id ?? one.provider ?? '-',
      one.account ?? (one.fingerprint === null ? `at ${one.issuer ?? '-'}` : `key ${one.fingerprint}`),
      one.for_users ? `${one.status}, for users too` : one.status,
      one.connected_at,
      one.last_used_at ?? '-',
      one.scopes.join(' '),
    ]);
    const head = ['SERVER OR PROVIDER', 'ACCOUNT OR KEY', 'STATUS', 'CONNECTED', 'LAST USED', 'SCOPES'];
    return { json: answer, text: rows.length === 0 ? 'No connections.' : table([head, ...rows]) };
  },
};

const disconnect: Command = {
  args: ['SERVER'],
  options: { tenant },
  help: "Ends a tenant's connection with a server.",
  changes: 'existing',
  async run({ admin, args: [server = ''], options }) {
    const held = await connectionsOf(admin, { tenant: tenantOf(options) });
    const connection = held.connections.find(one => one.server_id === server);
    const json = { tenant: tenantOf(options), server_id: server };
    const { ended } = (await admin.request('POST', '/connections/revoke', { json })) as { ended: boolean };
    if (!ended) {
      // Says so if there is no such server, and which was meant.
      await admin.request('GET', `/catalogue/${encodeURIComponent(server)}`);
      throw new CommandFailed(`${server} is not connected. See npx switchboard connections.`);
    }
    const hasKey = connection?.kind === 'credentials';
    const rest = hasKey
      ? 'The key stays valid at the server: delete it there if you no longer need it.'
      : 'Its authorization server is told to revoke the tokens.';
    return { json: { ended }, text: `Disconnected ${server}. ${rest}` };
  },
};

const link: Command = {
  args: ['USER_ID'],
  options: { tenant },
  help: 'Creates a link for a user, who is created if need be: it opens the page of their connections, or is entered where an MCP client is connected ([mcp-sign-in.md](mcp-sign-in.md)).',
  changes: 'existing',
  async run({ admin, args: [user = ''], options }) {
    const json = { user_id: user, tenant: options['tenant'] };
    const made = (await admin.request('POST', '/connections/link', { json })) as {
      url: string;
      expires_at: string;
    };
    const hint = `The link works once, until ${made.expires_at}, and only while the server is running.`;
    return { json: made, text: `${made.url}\n${hint}` };
  },
};

export const connectionCommands = {
  connect,
  connections: list,
  'connections link': link,
  disconnect,
};
