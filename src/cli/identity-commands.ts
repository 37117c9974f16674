import { SIGN_IN_MODES } from '../core/access/caller.ts';
import { listOf, type Command } from './command.ts';
import { table } from './io.ts';

const DEFAULT_TENANT = 'local';
const ofTenant = { type: 'string', help: `whose user it is (default: ${DEFAULT_TENANT})` } as const;

interface TenantInfo {
  readonly id: string;
  readonly name: string | null;
  readonly mode: string;
  readonly return_urls: readonly string[];
}

const textOf = ({ id, name, mode, return_urls }: TenantInfo) =>
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
  help: `show what a tenant's end users see and how they sign in (default: ${DEFAULT_TENANT})`,
  async run({ admin, args: [id = DEFAULT_TENANT] }) {
    const json = (await admin.request('GET', `/tenants/${encodeURIComponent(id)}`)) as TenantInfo;
    return { json, text: textOf(json) };
  },
};

const tenantSet: Command = {
  args: ['ID?'],
  options: {
    name: { type: 'string', help: "what pages call the app; '' takes it away" },
    mode: { type: 'string', help: `how a sign-in is finished: ${SIGN_IN_MODES.join(' or ')}` },
    'return-url': {
      type: 'string',
      multiple: true,
      help: "where the last page may lead back to; several or comma-separated, all of them; '' for none",
    },
  },
  help: `change what a tenant's end users see and how they sign in (default: ${DEFAULT_TENANT})`,
  changes: true,
  async run({ admin, args: [id = DEFAULT_TENANT], options }) {
    const json = {
      name: options['name'],
      mode: options['mode'],
      return_urls: listOf(options['return-url']),
    };
    const path = `/tenants/${encodeURIComponent(id)}`;
    const changed = (await admin.request('POST', path, { json })) as TenantInfo;
    return { json: changed, text: textOf(changed) };
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
  help: 'list the accounts a user has connected',
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
  help: 'make a link to the page on which a user sees and ends connections',
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
