// Every command, one line each. What they do is said in `bindings.ts`, where their types come from.

import type { Commands } from './bindings';
import { host, type CommandName } from './host';

type Arguments<K extends CommandName> = Commands[K]['arguments'];
type Result<K extends CommandName> = Commands[K]['result'];

function command<K extends CommandName>(
  name: K,
): Arguments<K> extends Record<string, never> ? () => Promise<Result<K>> : (args: Arguments<K>) => Promise<Result<K>>;
function command<K extends CommandName>(name: K) {
  return async (args?: Arguments<K>): Promise<Result<K>> => (await host()).invoke(name, args ?? ({} as Arguments<K>));
}

export const getState = command('get_state');
export const setPaused = command('set_paused');
export const setServerEnabled = command('set_server_enabled');
export const setToolEnabled = command('set_tool_enabled');
export const setAllToolsEnabled = command('set_all_tools_enabled');
export const restartServer = command('restart_server');
export const signInServer = command('sign_in_server');
export const readServer = command('read_server');
export const readServerOutput = command('read_server_output');
export const watchServerOutput = command('watch_server_output');
export const readTool = command('read_tool');
export const setServerSecret = command('set_server_secret');
export const parseServers = command('parse_servers');
export const addServer = command('add_server');
export const removeServer = command('remove_server');
export const readClients = command('read_clients');
export const planClient = command('plan_client');
export const changeClient = command('change_client');
export const keepClient = command('keep_client');
export const preferClient = command('prefer_client');
export const showClientFile = command('show_client_file');
export const setBackend = command('set_backend');
export const setEngine = command('set_engine');
export const setImage = command('set_image');
export const setPackagesPolicy = command('set_packages_policy');
export const removePackage = command('remove_package');
export const pullImage = command('pull_image');
export const checkSandbox = command('check_sandbox');
export const setLimit = command('set_limit');
export const resetLimit = command('reset_limit');
export const runCode = command('run_code');
export const stopInterpreter = command('stop_interpreter');
export const watchInterpreters = command('watch_interpreters');
export const readMemory = command('read_memory');
export const readMemoryItem = command('read_memory_item');
export const saveMemoryItem = command('save_memory_item');
export const forgetMemoryItem = command('forget_memory_item');
export const readSavedTools = command('read_saved_tools');
export const forgetSavedTool = command('forget_saved_tool');
export const undoForget = command('undo_forget');
export const exportMemory = command('export_memory');
export const importMemory = command('import_memory');
export const readRuns = command('read_runs');
export const readRun = command('read_run');
export const stopRun = command('stop_run');
export const answerQuestion = command('answer_question');
export const exportRuns = command('export_runs');
export const clearRuns = command('clear_runs');
export const changeSettings = command('change_settings');
export const checkForUpdate = command('check_for_update');
export const installUpdate = command('install_update');
export const restartApp = command('restart_app');
export const openPlace = command('open_place');
export const readDiagnostics = command('read_diagnostics');
export const saveDiagnostics = command('save_diagnostics');
export const readLicences = command('read_licences');
