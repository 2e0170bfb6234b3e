/** The names of images of PostgreSQL. */

/**
 * The major version by which CloudNativePG knows the PostgreSQL of an image: the number that its
 * tag begins with. It converts data of another one, with no way back.
 * https://cloudnative-pg.io/docs/1.30/image_catalog
 *
 * @returns null: no tag begins with one, and CloudNativePG refuses the image
 */
export function majorOfImage(image: string): number | null {
  const [name = ''] = image.split('@');
  const major = /:(\d{2})(?!\d)[^/]*$/.exec(name)?.[1];
  return major === undefined ? null : Number(major);
}
