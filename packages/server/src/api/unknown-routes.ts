/** 404 for paths that do not exist, 405 with the allowed methods for those that do. */
import { ApiError, BASE_PATH } from '@howdah/contract';
import type { FastifyReply } from 'fastify';
import { isVisit, sendPage } from './console.ts';
import type { App } from './context.ts';
import { sendError } from './errors.ts';

/** A path of the API as it is declared, with the methods that it has. */
type Route = { url: string; pattern: RegExp; literal: string; methods: Set<string> };

export function refuseUnknownRoutes(app: App): void {
  const routes = createRoutes();
  app.addHook('onRoute', ({ method, url }) => {
    for (const one of [method].flat()) routes.add(one, url);
  });
  app.addHook('onRequest', async ({ method, url, routeOptions }, reply) => {
    // `DELETE /services/deleted` is none of a service that is called "deleted".
    const declared = routes.moreLiteral(routeOptions.url ?? '', url);
    if (declared !== null && !declared.methods.has(method))
      return refuseMethod(reply, method, pathOf(url), declared);
  });
  app.setNotFoundHandler((request, reply) => {
    const { method, url } = request;
    const path = pathOf(url);
    const found = routes.find(path);
    // The patterns allow a slash at the end, but no route has one: such a path is unknown.
    if (found !== null && !found.methods.has(method))
      return refuseMethod(reply, method, path, found);
    if (isVisit(request)) return sendPage(reply, 404);
    return sendError(
      reply,
      new ApiError(
        'NOT_FOUND',
        `no such path: ${method} ${path.slice(0, 200)}; ${BASE_PATH}/openapi.json lists all`,
      ),
    );
  });
}

const pathOf = (url: string): string => url.split('?')[0] ?? '';

function refuseMethod(
  reply: FastifyReply,
  method: string,
  path: string,
  { methods }: Route,
): FastifyReply {
  const allowed = [...methods].join(', ');
  void reply.header('Allow', allowed);
  return sendError(
    reply,
    new ApiError(
      'METHOD_NOT_ALLOWED',
      `${method} is not allowed on ${path.slice(0, 200)}; allowed: ${allowed}`,
    ),
  );
}

/** The declared paths. If two match, the one counts whose first difference is no parameter. */
export function createRoutes() {
  const byUrl = new Map<string, Route>();
  // For each path with parameters, those that have a literal segment in the place of one.
  const beside = new Map<string, Route[]>();

  const add = (method: string, url: string): void => {
    const known = byUrl.get(url);
    if (known !== undefined) return void known.methods.add(method);
    const route: Route = {
      url,
      pattern: patternOf(url),
      // A parameter sorts behind every literal.
      literal: url.replaceAll(/:[a-z_]+|\*/g, '\u{10ffff}'),
      methods: new Set([method]),
    };
    for (const other of byUrl.values()) {
      if (other.pattern.test(url)) neighbours(other.url).push(route);
      if (route.pattern.test(other.url)) neighbours(url).push(other);
    }
    byUrl.set(url, route);
  };
  const neighbours = (url: string): Route[] => {
    const found = beside.get(url) ?? [];
    beside.set(url, found);
    return found;
  };
  return {
    add,
    find: (path: string): Route | null => first([...byUrl.values()], path),
    /** A declared path that matches and is more literal than the one that was chosen. */
    moreLiteral: (chosen: string, url: string): Route | null => {
      const found = beside.get(chosen);
      return found === undefined ? null : first(found, pathOf(url));
    },
  };
}

function first(routes: readonly Route[], path: string): Route | null {
  const matching = routes.filter(({ pattern }) => pattern.test(path));
  return matching.toSorted((a, b) => (a.literal < b.literal ? -1 : 1))[0] ?? null;
}

const patternOf = (url: string): RegExp =>
  new RegExp(
    `^${url
      .replaceAll(/[.+?^$()|[\]\\{}]/g, '\\$&')
      .replaceAll('*', '.*')
      .replaceAll(/:[a-z_]+/g, '[^/]+')}/?$`,
  );
