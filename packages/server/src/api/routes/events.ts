import { ApiError, EventSchema, Ref, documented } from '@howdah/contract';
import { Type } from 'typebox';
import type { ApiContext, App } from '../context.ts';
import { CURSORS } from '../paging.ts';
import { sendStream } from '../reply.ts';
import { ofProject } from './schemas.ts';

const EventsQuery = Type.Object({
  last_event_id: Type.Optional(
    Type.String({
      maxLength: 64,
      ...documented({ pattern: '^[0-9]{0,15}$' }),
      description: 'instead of the header Last-Event-ID',
      'x-go-name': 'LastEventIdInQuery',
    }),
  ),
  follow: Type.Optional(
    Type.Unsafe<'true' | 'false'>({
      type: 'string',
      enum: ['true', 'false'],
      description: 'false: end at the last event; default true',
    }),
  ),
});

export function eventRoutes(api: App, { events }: ApiContext): void {
  api.get(
    '/projects/:project_id/events',
    {
      // A HEAD request would wait for the end of the stream, which never comes.
      exposeHeadRoute: false,
      schema: {
        operationId: 'streamEvents',
        summary: 'Follow events as server-sent events',
        description:
          'The stream begins with the next event, or after the event in the header Last-Event-ID; 0 is before the first. Events are kept for 7 days: a client that reconnects later gets an event of the type gap. A comment every 15 seconds keeps the stream alive. It ends when the key is revoked.',
        tags: ['events'],
        params: ofProject,
        querystring: EventsQuery,
        headers: Type.Object({ 'last-event-id': Type.Optional(Type.String()) }),
        response: {
          200: {
            description: 'the data of each event is an Event',
            content: { 'text/event-stream': { schema: Ref(EventSchema) } },
          },
        },
      },
    },
    async (request, reply) => {
      const { key, query, headers } = request;
      const after = headers['last-event-id'] ?? query.last_event_id ?? '';
      if (after !== '' && !CURSORS.number.test(after))
        throw new ApiError(
          'INVALID_REQUEST',
          `Last-Event-ID: found ${JSON.stringify(after.slice(0, 64))}; allowed is the id of an event, digits`,
        );
      const stream = events.open({
        projectId: key.project_id,
        publicKey: key.key,
        after: after === '' ? null : after,
        follow: query.follow !== 'false',
      });
      // Proxies must forward each event at once.
      void reply
        .header('Cache-Control', 'no-store, no-transform')
        .header('X-Accel-Buffering', 'no');
      return sendStream(reply, 'text/event-stream', stream);
    },
  );
}
