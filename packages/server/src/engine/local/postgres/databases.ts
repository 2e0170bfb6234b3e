/** Errors of databases that are not there. */
import { DatabaseError } from 'pg';

/** Whether a database does not exist, or accepts no connections. */
export const isWithoutDatabase = (error: unknown): boolean =>
  error instanceof DatabaseError && ['3D000', '55000'].includes(error.code ?? '');
