/** The version of Howdah: that of the package, which a release checks. */
export const VERSION = '0.1.0';
