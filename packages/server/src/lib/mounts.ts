/** A field of /proc/self/mountinfo, where blanks and the like are octal (proc_pid_mountinfo(5)). */
export function unescaped(field: string): string {
  return field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
}
