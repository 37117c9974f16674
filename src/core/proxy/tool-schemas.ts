import { LRUCache } from 'lru-cache';
import type { Server } from '../catalogue/entry.ts';
import { type Params } from './envelope.ts';
import { isObject } from './json.ts';
import type { RpcReply } from './rpc.ts';

/** Schemas kept that servers turned out to have changed. */
const MAX_FRESH = 200;

/**
 * The input schemas that say which arguments a modern server wants repeated in headers: from the catalogue, and from the
 * server itself once it has refused the headers those gave.
 */
export class ToolSchemas {
  readonly #fresh = new LRUCache<string, object>({ max: MAX_FRESH });
  readonly #maxPages: number;

  constructor(maxPages: number) {
    this.#maxPages = maxPages;
  }

  get(server: Server, name: unknown): unknown {
    return (
      this.#fresh.get(keyOf(server, name)) ?? server.tools.find(tool => tool.name === name)?.input_schema
    );
  }

  /** Looks the tool up in the server's own tools/list; says whether it is there. */
  async refresh(
    server: Server,
    name: unknown,
    ask: (params: Params | undefined) => Promise<RpcReply>,
  ): Promise<boolean> {
    let cursor: string | undefined;
    for (let page = 0; page < this.#maxPages; page++) {
      const { answer } = await ask(cursor === undefined ? undefined : { cursor });
      if (!answer || !('result' in answer) || !isObject(answer.result)) return false;
      const { tools, nextCursor } = answer.result;
      const schema = schemaIn(tools, name);
      if (schema) {
        this.#fresh.set(keyOf(server, name), schema);
        return true;
      }
      if (typeof nextCursor !== 'string') return false;
      cursor = nextCursor;
    }
    return false;
  }
}

function schemaIn(tools: unknown, name: unknown): object | undefined {
  const tool: unknown = Array.isArray(tools)
    ? tools.find(each => isObject(each) && each['name'] === name)
    : undefined;
  return isObject(tool) && isObject(tool['inputSchema']) ? tool['inputSchema'] : undefined;
}

const keyOf = (server: Server, name: unknown) => JSON.stringify([server.remoteUrl, name]);
