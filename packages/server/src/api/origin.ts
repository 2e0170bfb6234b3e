import type { FastifyRequest } from 'fastify';

/**
 * The address of this installation as the caller reaches it, like https://howdah.example.com:8080;
 * createHostCheck has checked its name.
 */
export const originOf = ({ protocol, host }: Pick<FastifyRequest, 'protocol' | 'host'>): string =>
  `${protocol}://${host}`;
