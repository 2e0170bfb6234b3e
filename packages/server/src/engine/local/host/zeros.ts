/** Files that end in zeros: a WAL file that was left early does. */

const ZEROS = Buffer.alloc(65_536);

/** How many bytes of a file are not zeros at its end, in steps of 64 KiB. */
export function usedBytes(contents: Buffer): number {
  let end = contents.length;
  while (end >= ZEROS.length && contents.subarray(end - ZEROS.length, end).equals(ZEROS))
    end -= ZEROS.length;
  return end;
}
