/** The size of a service, as an argument of tools. */
import type { Schemas } from '@howdah/client';
import { STORAGE_GB } from '@howdah/contract/sizes';
import { Type } from 'typebox';

export const size = {
  cpu_millis: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: 'thousandths of a core; list_regions shows the sizes',
    }),
  ),
  memory_gbs: Type.Optional(
    Type.Integer({ minimum: 1, description: 'gigabytes; follows from cpu_millis' }),
  ),
  storage_gb: Type.Optional(
    Type.Integer({
      minimum: STORAGE_GB.min,
      maximum: STORAGE_GB.max,
      description:
        'gigabytes of disk for each of its servers; default: 5 for each gigabyte of memory, at least 10; for a fork, that of its parent',
    }),
  ),
};
type Size = Pick<Schemas['CreateService'], 'storage_gb'> & {
  cpu_millis?: number;
  memory_gbs?: number;
};
/** The size in a request, without fields that the API chooses. */
export function sizeIn({ cpu_millis, memory_gbs, storage_gb }: Size): Size {
  return {
    ...(cpu_millis === undefined ? {} : { cpu_millis }),
    ...(memory_gbs === undefined ? {} : { memory_gbs }),
    ...(storage_gb === undefined ? {} : { storage_gb }),
  };
}
