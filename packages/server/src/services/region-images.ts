/** The images of a region on Kubernetes, and which of them may be set. */
import { ApiError, type Addon, type AddonExtension, type AddRegionBody } from '@howdah/contract';
import { extensionsOf } from '../domain/postgres/extensions-of.ts';
import { majorOfImage } from '../domain/postgres/image.ts';

/** By major version of PostgreSQL. */
type Images = Readonly<{
  images: Readonly<Record<string, string>>;
  /** Those of each image beside the contributed modules. */
  extensions: Readonly<Record<string, readonly AddonExtension[]>>;
}>;

const MAJORS = [18, 17, 16] as const;
/** The images of CloudNativePG's project. */
const IMAGES = Object.fromEntries(
  MAJORS.map((major) => [major, `ghcr.io/cloudnative-pg/postgresql:${major}-standard-trixie`]),
);
/** They have these beside the contributed modules. */
const EXTENSIONS = Object.fromEntries(
  MAJORS.map((major): [number, AddonExtension[]] => [major, ['vector']]),
);

/** The image of PgBouncer by the same project. */
export const POOLER_IMAGE = 'ghcr.io/cloudnative-pg/pgbouncer:1.25.1';

/** The images of a region and their extensions. @throws ApiError INVALID_REQUEST */
export function imagesOf({
  images = IMAGES,
  extensions = images === IMAGES ? EXTENSIONS : {},
}: Pick<AddRegionBody, 'images' | 'extensions'>): Images {
  const without = Object.keys(extensions).find((major) => images[major] === undefined);
  if (without !== undefined)
    throw new ApiError(
      'INVALID_REQUEST',
      `extensions: PostgreSQL ${without} has no image; name it in images, or leave it out`,
    );
  for (const [major, image] of Object.entries(images))
    if (majorOfImage(image) !== Number(major))
      throw new ApiError(
        'INVALID_REQUEST',
        `images: the tag of the image of PostgreSQL ${major} must begin with ${major}, as in ` +
          `pg:${major}.2; found ${image.slice(0, 100)}. CloudNativePG takes the version from the ` +
          'tag, and would convert the data of services to another one',
      );
  return { images, extensions };
}

/** @throws ApiError CONFLICT where an image or an extension is missing that services need */
export function refuseNeeded(
  code: string,
  { images, extensions }: Images,
  { major, addons }: Readonly<{ major: number; addons: readonly Addon[] }>,
): void {
  const needed = `the region ${code} has services, or deleted ones that can be restored, of`;
  if (images[major] === undefined)
    throw new ApiError('CONFLICT', `images: ${needed} PostgreSQL ${major}; name its image`);
  const had = extensions[major] ?? [];
  const missing = extensionsOf(addons).find((extension) => !had.includes(extension));
  if (missing !== undefined)
    throw new ApiError(
      'CONFLICT',
      `extensions: ${needed} PostgreSQL ${major} with ${missing}; name an image that has it`,
    );
}
