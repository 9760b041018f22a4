// The desktop app as host.

import { invoke } from '@tauri-apps/api/core';
import { listen } from '@tauri-apps/api/event';
import { EVENT, type BridgeEvent } from './bindings';
import type { Host } from './host';

export const tauriHost: Host = {
  invoke: (name, args) => invoke(name, args),
  listen: (handler) => listen<BridgeEvent>(EVENT, (event) => handler(event.payload)),
};
