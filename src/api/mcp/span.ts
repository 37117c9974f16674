import { z } from 'zod';
import { knownMethod } from '../../core/proxy/call-span.ts';
import { activeSpan, type Span } from '../../platform/telemetry/tracing.ts';
import { TOOL_NAMES } from './tools.ts';

const request = z.object({
  method: z.string().transform(knownMethod),
  params: z.object({ name: z.unknown().optional(), _meta: z.unknown().optional() }).optional(),
});

/**
 * A message's part of the trace of its request (OpenTelemetry, "Semantic conventions for MCP"). A client that traces says so in
 * the message's `_meta` rather than in headers, and the trace that is named there goes before that of the HTTP request.
 */
export function spanOf(message: unknown): Span | undefined {
  const parent = activeSpan();
  const parsed = parent && request.safeParse(message).data;
  if (!parsed) return undefined;
  const { method, params } = parsed;
  const tool = method === 'tools/call' ? TOOL_NAMES.find(name => name === params?.name) : undefined;
  return parent.child(tool === undefined ? method : `${method} ${tool}`, {
    kind: 'server',
    from: params?._meta,
    attributes: {
      'mcp.method.name': method,
      'gen_ai.tool.name': tool,
      'gen_ai.operation.name': method === 'tools/call' ? 'execute_tool' : undefined,
    },
  });
}
