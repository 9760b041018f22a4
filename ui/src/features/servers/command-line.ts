// A command line as people type it, split into words: quotes and backslashes as in a POSIX shell, and
// nothing else of a shell.

/** The words, or `null` when a quotation mark is not closed. */
export function splitCommandLine(line: string): string[] | null {
  const parts: string[] = [];
  let part: string | null = null;
  let quote: '"' | "'" | null = null;
  for (let at = 0; at < line.length; at += 1) {
    const char = line.charAt(at);
    const next = line.charAt(at + 1);
    if (quote) {
      if (char === quote) quote = null;
      else if (char === '\\' && quote === '"' && (next === '"' || next === '\\')) {
        part += next;
        at += 1;
      } else part += char;
    } else if (char === '"' || char === "'") {
      quote = char;
      part ??= '';
      // A backslash before anything else stays, as it stands in the paths of Windows.
    } else if (char === '\\' && /[\s"'\\]/.test(next)) {
      part = (part ?? '') + next;
      at += 1;
    } else if (/\s/.test(char)) {
      if (part !== null) parts.push(part);
      part = null;
    } else part = (part ?? '') + char;
  }
  if (quote) return null;
  if (part !== null) parts.push(part);
  return parts;
}
