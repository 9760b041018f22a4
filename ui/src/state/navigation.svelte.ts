// Which view is shown and what is open in it. Views lead to one another only through here.

export const views = ['home', 'servers', 'clients', 'sandbox', 'memory', 'activity', 'settings'] as const;

export type View = (typeof views)[number];

class Navigation {
  view = $state<View>('home');
  /** What is open in each view: a server's name, a memory key, a run. */
  open = $state<Partial<Record<View, string | null>>>({});
  /** The part of a view that is shown, where it has parts. */
  part = $state<Partial<Record<View, string>>>({});

  /** Where the window's address leads: `?view=servers&open=github`. */
  start(query: URLSearchParams): void {
    const view = views.find((it) => it === query.get('view'));
    if (!view) return;
    this.go(view, { open: query.get('open'), part: query.get('part') ?? undefined });
  }

  /** Shows a view; `open` and `part` stay as they were unless they are given. */
  go(view: View, at: { open?: string | null; part?: string } = {}): void {
    this.view = view;
    if (at.open !== undefined) this.open[view] = at.open;
    if (at.part !== undefined) this.part[view] = at.part;
  }

  /** One step back inside the view; says whether there was one. */
  back(): boolean {
    if (!this.open[this.view]) return false;
    this.open[this.view] = null;
    return true;
  }
}

export const navigation = new Navigation();
