import { SCOPES, SIGN_IN_MODES } from '../core/access/caller.ts';
import { listOf, UsageError, type Command } from './command.ts';
import { table } from './terminal.ts';

interface KeyInfo {
  readonly id: string;
  readonly name: string;
  readonly tenant: string;
  readonly user: string | null;
  readonly scopes: readonly string[];
  readonly monthly_quota: Counts<number | null>;
  readonly used_this_month: Counts<number>;
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
}

interface Counts<Count> {
  readonly calls: Count;
  readonly searches: Count;
}

const QUOTA_OPTIONS = {
  calls: { type: 'string', help: 'Proxied calls in a calendar month (UTC), or `none` for no limit.' },
  searches: { type: 'string', help: 'Searches in a calendar month (UTC), or `none` for no limit.' },
} as const;

const create: Command = {
  args: [],
  options: {
    name: { type: 'string', help: 'What the key is for.' },
    scopes: {
      type: 'string',
      help: `Scopes, separated by commas: ${SCOPES.map(scope => `\`${scope}\``).join(', ')}. By default the first three, and with \`--user\` the first two.`,
    },
    expires: {
      type: 'string',
      help: 'Time after which the key is refused, such as `2030-01-31T00:00:00Z`.',
    },
    tenant: {
      type: 'string',
      help: 'Tenant that owns the key. It is made if it is new. Default: `local`.',
    },
    user: {
      type: 'string',
      help: 'Makes a key that acts for this one user of the tenant, without an identity token.',
    },
    ...QUOTA_OPTIONS,
  },
  help: 'Makes an API key. It is shown once.',
  changes: true,
  async run({ admin, options }) {
    const json = {
      name: options['name'] ?? 'unnamed',
      scopes: listOf(options['scopes']),
      expires_at: options['expires'],
      tenant: options['tenant'],
      user_id: options['user'],
      monthly_quota: quota(options),
    };
    const created = (await admin.request('POST', '/keys', { json })) as KeyInfo & { key: string };
    return { json: created, text: `API key (shown once): ${created.key}` };
  },
};

const list: Command = {
  args: [],
  help: 'Lists the API keys, with what they have used this month.',
  async run({ admin }) {
    const answer = (await admin.request('GET', '/keys')) as { keys: KeyInfo[] };
    const rows = answer.keys.map(key => [
      key.id,
      stateOf(key),
      key.tenant,
      key.scopes.join(','),
      key.created_at,
      key.user ?? '-',
      used(key, 'calls'),
      used(key, 'searches'),
      key.name,
    ]);
    const head = ['ID', 'STATE', 'TENANT', 'SCOPES', 'CREATED', 'USER', 'CALLS', 'SEARCHES', 'NAME'];
    return { json: answer, text: table([head, ...rows]) };
  },
};

/** Returns `12/100`, or `12` without a limit. */
const used = ({ used_this_month, monthly_quota }: KeyInfo, name: keyof Counts<unknown>) =>
  `${used_this_month[name]}${monthly_quota[name] === null ? '' : `/${monthly_quota[name]}`}`;

const set: Command = {
  args: ['ID'],
  options: { name: { type: 'string', help: 'What the key is for.' }, ...QUOTA_OPTIONS },
  help: 'Changes the name or the monthly quota of an API key. What is not given stays.',
  changes: true,
  async run({ admin, args: [id = ''], options }) {
    const json = { name: options['name'], monthly_quota: quota(options) };
    const path = `/keys/${encodeURIComponent(id)}`;
    const key = (await admin.request('POST', path, { json })) as KeyInfo;
    const { calls, searches } = key.monthly_quota;
    const text = `${id} (${key.name}): ${calls ?? 'any number of'} calls and ${searches ?? 'any number of'} searches a month.`;
    return { json: key, text };
  },
};

/** @throws UsageError for what is neither a number nor `none`. */
function quota(options: Readonly<Record<string, unknown>>): Partial<Counts<number | null>> {
  const given = (['calls', 'searches'] as const).filter(name => options[name] !== undefined);
  return Object.fromEntries(given.map(name => [name, limit(name, options[name])]));
}

function limit(name: string, value: unknown): number | null {
  if (value === 'none') return null;
  if (/^[1-9]\d{0,9}$/.test(String(value))) return Number(value);
  throw new UsageError(`--${name} must be a whole number from 1 on, or none`);
}

const stateOf = ({ revoked_at, expires_at }: KeyInfo) => {
  if (revoked_at !== null) return 'revoked';
  return expires_at !== null && Date.parse(expires_at) <= Date.now() ? 'expired' : 'active';
};

const rotate: Command = {
  args: ['ID'],
  options: {
    overlap: {
      type: 'string',
      help: 'How long the old key stays valid: `90s`, `30m`, `24h`, `7d`. Default: `24h`.',
    },
  },
  help: 'Makes a key in place of another, which ends after an overlap. The new key is shown once.',
  changes: true,
  async run({ admin, args: [id = ''], options }) {
    const json = { overlap_sec: seconds(options['overlap'] ?? '24h') };
    const path = `/keys/${encodeURIComponent(id)}/rotate`;
    const created = (await admin.request('POST', path, { json })) as KeyInfo & {
      key: string;
      replaces: KeyInfo;
    };
    const text = `API key (shown once): ${created.key}\n${id} ends at ${created.replaces.expires_at}.`;
    return { json: created, text };
  },
};

const UNIT_SEC: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

function seconds(value: unknown): number {
  const [, count, unit = ''] = /^(\d{1,9})([smhd])$/.exec(String(value)) ?? [];
  const factor = UNIT_SEC[unit];
  if (count === undefined || factor === undefined)
    throw new UsageError('--overlap must be a number with a unit: 90s, 30m, 24h, 7d');
  return Number(count) * factor;
}

const revoke: Command = {
  args: ['ID'],
  help: 'Ends an API key at once.',
  changes: true,
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('POST', `/keys/${encodeURIComponent(id)}/revoke`);
    return { json, text: `Revoked ${id}.` };
  },
};

const rewrap: Command = {
  args: [],
  help: 'Seals everything in the vault with the first key of `SWITCHBOARD_KEKS`. It can be interrupted and run again.',
  changes: true,
  async run({ admin, io }) {
    let total = 0;
    for (;;) {
      const { sealed } = (await admin.request('POST', '/vault/rewrap')) as { sealed: number };
      if (sealed === 0) return { json: { sealed: total }, text: `Done: ${total} rows were sealed anew.` };
      total += sealed;
      io.complain(`${total} rows sealed anew`);
    }
  },
};

const retire: Command = {
  args: ['KEK_ID'],
  help: 'Says whether a key can be taken out of `SWITCHBOARD_KEKS`.',
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('POST', '/vault/retire', { json: { key_id: id } });
    return { json, text: `Nothing is sealed with ${id} any more. You can take it out of SWITCHBOARD_KEKS.` };
  },
};

const rotateSigning: Command = {
  args: [],
  help: 'Signs identity tokens with the next key. The old one stays published until its last token has expired.',
  changes: true,
  async run({ admin }) {
    const json = (await admin.request('POST', '/signing-keys/rotate')) as { active: string; retired: string };
    return { json, text: `${json.active} signs now, ${json.retired} is retired.` };
  },
};

export const keyCommands = {
  'keys create': create,
  'keys list': list,
  'keys set': set,
  'keys rotate': rotate,
  'keys revoke': revoke,
  'keys rewrap': rewrap,
  'keys retire': retire,
  'keys rotate-signing': rotateSigning,
};

const DEFAULT_TENANT = 'local';
const ofTenant = { type: 'string', help: 'Tenant that the user belongs to. Default: `local`.' } as const;

interface TenantInfo {
  readonly id: string;
  readonly name: string | null;
  readonly mode: string;
  readonly return_urls: readonly string[];
}

const tenantText = ({ id, name, mode, return_urls }: TenantInfo) =>
  table([
    ['tenant', id],
    ['name', name ?? '-'],
    ['sign-in mode', mode],
    ...(return_urls.length === 0 ? ['-'] : return_urls).map((url, at) => [
      at === 0 ? 'return URLs' : '',
      url,
    ]),
  ]);

const tenantShow: Command = {
  args: ['ID?'],
  help: "Shows what a tenant's end users see and how they sign in. Default tenant: `local`.",
  async run({ admin, args: [id = DEFAULT_TENANT] }) {
    const json = (await admin.request('GET', `/tenants/${encodeURIComponent(id)}`)) as TenantInfo;
    return { json, text: tenantText(json) };
  },
};

const tenantSet: Command = {
  args: ['ID?'],
  options: {
    name: { type: 'string', help: "What the pages call the app. `''` removes the name." },
    mode: {
      type: 'string',
      help: `How a sign-in is finished: ${SIGN_IN_MODES.map(mode => `\`${mode}\``).join(' or ')} ([identity.md](identity.md#who-finishes-a-sign-in)).`,
    },
    'return-url': {
      type: 'string',
      multiple: true,
      help: "Where the last page may lead back to. Repeat it or separate by commas, and give all of them; `''` for none.",
    },
  },
  help: "Changes what a tenant's end users see and how they sign in. Default tenant: `local`.",
  changes: true,
  async run({ admin, args: [id = DEFAULT_TENANT], options }) {
    const json = {
      name: options['name'],
      mode: options['mode'],
      return_urls: listOf(options['return-url']),
    };
    const path = `/tenants/${encodeURIComponent(id)}`;
    const changed = (await admin.request('POST', path, { json })) as TenantInfo;
    return { json: changed, text: tenantText(changed) };
  },
};

interface ConnectionInfo {
  readonly provider: string;
  readonly account: string | null;
  readonly status: string;
  readonly scopes: readonly string[];
  readonly connected_at: string;
  readonly last_used_at: string | null;
}

const connectionsList: Command = {
  args: ['USER_ID'],
  options: { tenant: ofTenant },
  help: 'Lists the accounts that a user has connected.',
  async run({ admin, args: [user = ''], options }) {
    const query = new URLSearchParams({ user_id: user, tenant: String(options['tenant'] ?? DEFAULT_TENANT) });
    const answer = (await admin.request('GET', `/connections?${query.toString()}`)) as {
      connections: ConnectionInfo[];
    };
    const rows = answer.connections.map(one => [
      one.provider,
      one.account ?? '-',
      one.status,
      one.connected_at,
      one.last_used_at ?? '-',
      one.scopes.join(' '),
    ]);
    const head = ['PROVIDER', 'ACCOUNT', 'STATE', 'CONNECTED', 'LAST USED', 'SCOPES'];
    return { json: answer, text: rows.length === 0 ? 'No connections.' : table([head, ...rows]) };
  },
};

const connectionsLink: Command = {
  args: ['USER_ID'],
  options: { tenant: ofTenant },
  help: 'Makes a link to the page on which a user sees and ends connections.',
  changes: true,
  async run({ admin, args: [user = ''], options }) {
    const json = { user_id: user, tenant: options['tenant'] };
    const link = (await admin.request('POST', '/connections/link', { json })) as {
      url: string;
      expires_at: string;
    };
    const hint = `It works once, until ${link.expires_at}, and only while a server runs.`;
    return { json: link, text: `${link.url}\n${hint}` };
  },
};

export const identityCommands = {
  'tenant show': tenantShow,
  'tenant set': tenantSet,
  'connections list': connectionsList,
  'connections link': connectionsLink,
};
