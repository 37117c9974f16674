import { SCOPES, SIGN_IN_MODES } from '../core/access/caller.ts';
import { DEFAULT_TENANT, listOf, UsageError, type Command } from './command.ts';
import { table } from './terminal.ts';

interface KeyInfo {
  readonly id: string;
  readonly name: string;
  readonly tenant: string;
  readonly user: string | null;
  readonly client_id: string | null;
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
  calls: { type: 'string', help: 'Proxied calls per calendar month (UTC), or `none` for no limit.' },
  searches: { type: 'string', help: 'Searches per calendar month (UTC), or `none` for no limit.' },
} as const;

const create: Command = {
  args: [],
  options: {
    name: { type: 'string', help: 'What the key is for.' },
    scopes: {
      type: 'string',
      help: `Comma-separated scopes: ${SCOPES.map(scope => `\`${scope}\``).join(', ')}. By default the first three, and with \`--user\` the first two. \`admin\` includes \`admin_read\`.`,
    },
    expires: {
      type: 'string',
      help: 'Time at which the key expires, such as `2030-01-31T00:00:00Z`.',
    },
    tenant: {
      type: 'string',
      help: 'Tenant that owns the key. Created if it does not exist. Default: `local`.',
    },
    user: {
      type: 'string',
      help: 'User of the tenant that the key acts for, without an identity token.',
    },
    ...QUOTA_OPTIONS,
  },
  help: 'Creates an API key. It is shown only once.',
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
  help: 'Lists the API keys with their usage this month.',
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
  help: 'Changes the name or the monthly quota of an API key. Omitted options stay unchanged.',
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

/** @throws UsageError for anything but a number or `none` */
function quota(options: Readonly<Record<string, unknown>>): Partial<Counts<number | null>> {
  const given = (['calls', 'searches'] as const).filter(name => options[name] !== undefined);
  return Object.fromEntries(given.map(name => [name, limit(name, options[name])]));
}

function limit(name: string, value: unknown): number | null {
  if (value === 'none') return null;
  if (/^[1-9]\d{0,9}$/.test(String(value))) return Number(value);
  throw new UsageError(`--${name} must be a positive whole number, or none`);
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
  help: 'Replaces an API key. The old key stays valid for an overlap. The new key is shown only once.',
  changes: true,
  async run({ admin, args: [id = ''], options }) {
    const json = { overlap_sec: seconds(options['overlap'] ?? '24h') };
    const path = `/keys/${encodeURIComponent(id)}/rotate`;
    const created = (await admin.request('POST', path, { json })) as KeyInfo & {
      key: string;
      replaces: KeyInfo;
    };
    const text = `API key (shown once): ${created.key}\n${id} expires at ${created.replaces.expires_at}.`;
    return { json: created, text };
  },
};

const UNIT_SEC: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Reads a duration, such as `24h`. @throws UsageError */
export function seconds(value: unknown): number {
  const [, count, unit = ''] = /^(\d{1,9})([smhd])$/.exec(String(value)) ?? [];
  const factor = UNIT_SEC[unit];
  if (count === undefined || factor === undefined)
    throw new UsageError('--overlap must be a number with a unit: 90s, 30m, 24h, 7d');
  return Number(count) * factor;
}

const revoke: Command = {
  args: ['ID'],
  help: 'Revokes an API key immediately.',
  changes: true,
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('POST', `/keys/${encodeURIComponent(id)}/revoke`);
    return { json, text: `Revoked ${id}.` };
  },
};

const rewrap: Command = {
  args: [],
  help: 'Re-encrypts the vault with the first key of `SWITCHBOARD_KEKS`. Can be interrupted and run again.',
  changes: true,
  async run({ admin, io }) {
    let total = 0;
    for (;;) {
      const { sealed } = (await admin.request('POST', '/vault/rewrap')) as { sealed: number };
      if (sealed === 0) return { json: { sealed: total }, text: `Re-encrypted ${total} rows.` };
      total += sealed;
      io.complain(`${total} rows re-encrypted`);
    }
  },
};

const retire: Command = {
  args: ['KEK_ID'],
  help: 'Checks whether a key can be removed from `SWITCHBOARD_KEKS`.',
  async run({ admin, args: [id = ''] }) {
    const json = await admin.request('POST', '/vault/retire', { json: { key_id: id } });
    return {
      json,
      text: `Nothing is encrypted with ${id} any more. You can remove it from SWITCHBOARD_KEKS.`,
    };
  },
};

const rotateSigning: Command = {
  args: [],
  help: 'Switches to the next signing key for identity tokens. The old key stays published until its last token has expired.',
  changes: true,
  async run({ admin }) {
    const json = (await admin.request('POST', '/signing-keys/rotate')) as { active: string; retired: string };
    return { json, text: `${json.active} is now the signing key; ${json.retired} is retired.` };
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

interface SignInRule {
  readonly provider: string;
  readonly user_id: string;
  readonly domain?: string;
}

interface TenantInfo {
  readonly id: string;
  readonly name: string | null;
  readonly mode: string;
  readonly return_urls: readonly string[];
  readonly sign_in: SignInRule | null;
}

const tenantText = ({ id, name, mode, return_urls, sign_in }: TenantInfo) =>
  table([
    ['tenant', id],
    ['name', name ?? '-'],
    ['sign-in mode', mode],
    ...(return_urls.length === 0 ? ['-'] : return_urls).map((url, at) => [
      at === 0 ? 'return URLs' : '',
      url,
    ]),
    ['sign-in', sign_in ? signInText(sign_in) : '-'],
  ]);

const signInText = ({ provider, user_id, domain }: SignInRule) =>
  `${provider}:${user_id}${domain === undefined ? '' : `@${domain}`}`;

const tenantShow: Command = {
  args: ['ID?'],
  help: "Shows a tenant's app name and sign-in settings. Default tenant: `local`.",
  async run({ admin, args: [id = DEFAULT_TENANT] }) {
    const json = (await admin.request('GET', `/tenants/${encodeURIComponent(id)}`)) as TenantInfo;
    return { json, text: tenantText(json) };
  },
};

const tenantSet: Command = {
  args: ['ID?'],
  options: {
    name: { type: 'string', help: "App name shown on pages. `''` removes it." },
    mode: {
      type: 'string',
      help: `How a sign-in is completed: ${SIGN_IN_MODES.map(mode => `\`${mode}\``).join(', ')} ([identity.md](identity.md#who-completes-a-sign-in)).`,
    },
    'return-url': {
      type: 'string',
      multiple: true,
      help: "Addresses that the last page may link back to. Repeat the option or separate with commas. Replaces the whole list; `''` clears it.",
    },
    'sign-in': {
      type: 'string',
      help: "How users sign in without a link: `PROVIDER:email`, `PROVIDER:sub`, or `PROVIDER:email@DOMAIN`, which also lets in everybody with an address there ([identity.md](identity.md#the-users-page)). `''` removes it.",
    },
  },
  help: "Changes a tenant's app name and sign-in settings. Default tenant: `local`.",
  changes: true,
  async run({ admin, args: [id = DEFAULT_TENANT], options }) {
    const json = {
      name: options['name'],
      mode: options['mode'],
      return_urls: listOf(options['return-url']),
      sign_in: signInOf(options['sign-in']),
    };
    const path = `/tenants/${encodeURIComponent(id)}`;
    const changed = (await admin.request('POST', path, { json })) as TenantInfo;
    return { json: changed, text: tenantText(changed) };
  },
};

/** Reads `PROVIDER:CLAIM[@DOMAIN]`. The server says what is wrong with others. */
function signInOf(option: unknown): SignInRule | null | undefined {
  if (typeof option !== 'string') return undefined;
  if (option === '') return null;
  const at = option.lastIndexOf(':');
  const [userId = '', domain] = option.slice(at + 1).split('@', 2);
  const rule = { provider: option.slice(0, Math.max(0, at)), user_id: userId };
  return domain === undefined ? rule : { ...rule, domain };
}

export const tenantCommands = {
  'tenant show': tenantShow,
  'tenant set': tenantSet,
};
