/** The umask of programs that make files of an installation. */

/**
 * The umask for files of an installation. The modes that the code names decide who can read a file,
 * not the shell or the unit that started the program: root's files must be open to the users that
 * servers run as, and no umask may close a file to its own user.
 *
 * @param umask the caller's
 */
export function installationUmask(umask: number, isRoot: boolean): number {
  return isRoot ? 0o022 : umask & 0o077;
}

/** Sets the umask of this process. */
export function setInstallationUmask(): void {
  process.umask(installationUmask(process.umask(), process.getuid?.() === 0));
}
