// Written by `cargo xtask bindings` from runbridge-core::api. Change the types there.

/** Why a command failed, or what is wrong with a thing. */
export type ApiError = {
/** What kind; the window has a sentence for each. */
code: ErrorCode,
/** The facts: what happened, to which thing. */
message: string,
/** What to do now, when that is known. */
hint: string | null,
/** Under which the log has more. */
logId: string | null, };

/** This program. */
export type AppInfo = {
/** Its version. */
version: string,
/** `linux`, `macos` or `windows`. */
system: string,
/** The sidecar that clients start. */
sidecar: string,
/** The settings file. */
settingsFile: string,
/** Where memory and saved tools lie. */
stateFolder: string,
/** Where the record of runs lies. */
dataFolder: string,
/** Where logs lie. */
logsFolder: string,
/** Where secrets are kept. */
secretStore: SecretStore,
/** Whether a newer version is there. */
update: UpdateState, };

/** Decisions that are not limits. */
export type AppSettings = {
/** Start with the computer. */
launchAtLogin: boolean,
/** Tell about what needs the user. */
notifications: boolean,
/** Look for updates by itself. */
checkForUpdates: boolean,
/** Light or dark. */
appearance: Appearance,
/** Days that a run stays on record. */
keepRunsDays: number,
/** Runs that stay on record. */
keepRunsMax: number, };

/** Light or dark. */
export type Appearance = "system" | "light" | "dark";

/** Something that needs the user. */
export type Attention = {
/** Stays the same while the same thing is wrong. */
id: string,
/** How bad. */
level: Level,
/** What is wrong. */
error: ApiError,
/** With which thing. */
subject: Subject, };

/** The user's choice of backend. */
export type Backend = "auto" | "container" | "wasi";

/** One change, as the event's payload. */
export type BridgeEvent = {
/** One higher than the event before. */
seq: number,
/** What changed. */
change: Change, };

/** One tool call. */
export type Call = {
/** Identifier, unique in its run. */
id: string,
/** The server. */
server: string,
/** The tool. */
tool: string,
/** Arguments as JSON text, redacted and cut. */
arguments: string,
/** Milliseconds after the run's start. */
startMs: number,
/** How it stands. */
state: CallState,
/** How long it took, once it ended. */
durationMs: number | null,
/** Size of its result. */
resultBytes: number | null, };

/** How a call stands. */
export type CallState = { "type": "open" } | { "type": "done" } | { "type": "failed",
/** Why. */
error: ApiError, };

/** What changed. A value replaces the one with the same identifier. */
export type Change = { "type": "connection",
/** The client. */
connection: Connection, } | { "type": "connection_closed",
/** Its identifier. */
id: string, } | { "type": "server",
/** The server. */
server: Server, } | { "type": "server_removed",
/** Its name. */
name: string, } | { "type": "server_output",
/** Its name. */
server: string, } | { "type": "entries",
/** Entries that could not be read. */
problems: Array<EntryProblem>,
/** Entries that were left out on purpose. */
skipped: Array<SkippedEntry>, } | { "type": "clients",
/** All of them. */
clients: Array<Client>, } | { "type": "sandbox",
/** The sandbox. */
sandbox: SandboxStatus, } | { "type": "interpreter",
/** The interpreter. */
interpreter: Interpreter, } | { "type": "interpreter_stopped",
/** Its identifier. */
id: string, } | { "type": "measured",
/** When. */
at: number,
/** One per interpreter. */
measures: Array<Measure>, } | { "type": "run",
/** The run. */
run: Run, } | { "type": "run_output",
/** The run. */
runId: string,
/** Where it wrote. */
stream: Stream,
/** What it wrote since the last such event. */
text: string, } | { "type": "call",
/** The run. */
runId: string,
/** The call. */
call: Call, } | { "type": "question",
/** What. */
question: Question, } | { "type": "question_closed",
/** Its identifier. */
id: string, } | { "type": "memory_saved",
/** The item without its value. */
info: MemoryInfo,
/** The new totals. */
totals: MemoryTotals, } | { "type": "memory_forgotten",
/** Its key. */
key: string,
/** The new totals. */
totals: MemoryTotals, } | { "type": "saved_tools",
/** The new totals. */
totals: MemoryTotals, } | { "type": "limits",
/** All of them. */
limits: Array<Limit>, } | { "type": "settings",
/** All of them. */
settings: AppSettings, } | { "type": "app",
/** The program. */
app: AppInfo, } | { "type": "attention",
/** All of them. */
attention: Array<Attention>, } | { "type": "paused",
/** Whether it is paused now. */
paused: boolean, } | { "type": "savings",
/** Today's figures. */
savings: Savings, } | { "type": "seen",
/** What has ever happened. */
seen: Seen, };

/** One thing to choose. */
export type Choice = {
/** As the answer has it. */
value: string,
/** As people read it. */
label: string, };

/** An MCP client that is on this machine. */
export type Client = {
/** Its identifier. */
id: string,
/** Its name as its makers write it. */
name: string,
/** How it may call itself when it attaches: beginnings of names, in lower case and without signs. */
announces: Array<string>,
/** The file that it reads, if that is clear. */
file: string | null,
/** How things stand. */
state: ClientState,
/** Whether it runs; `None`: the system does not tell. */
running: boolean | null,
/** What makes it see a change, as an order; `None`: it sees changes by itself. */
restart: string | null,
/** Whenever our entry is lost, it is put back. */
keep: boolean,
/** Where another client has a server of the same name, this one's keeps the name. */
preferred: boolean,
/** Its own servers, those first that it starts itself. */
servers: Array<ClientServer>, };

/** What to do with a client. */
export type ClientAction = "connect" | "disconnect" | "move" | "restore";

/** A change of a client's file, to be looked at before it is made. */
export type ClientPlan = {
/** The client. */
client: string,
/** The file. */
file: string,
/** The file is not there yet. */
creates: boolean,
/** Whether the file changes at all. */
changes: boolean,
/** The change as a unified diff without its heading, secrets left out. */
diff: string,
/** What is worth saying: what stays as it is and why, what to do next. */
notes: Array<string>,
/** Tokens of definitions that the client reads now, about. */
tokensBefore: number,
/** And afterwards. */
tokensAfter: number,
/** Servers of which nobody has listed the tools, so that these figures lack them. */
tokensUnknown: number,
/** Names this very change: only the change that was looked at is made. */
seen: string, };

/** A server of a client's own. */
export type ClientServer = {
/** Its name there. */
name: string,
/** Why the client does not start it, if it does not. */
off: string | null,
/** It was moved behind the bridge. */
moved: boolean,
/** Its tools; `None`: nobody has listed them yet. */
tools: number | null,
/** Tokens of their definitions, about. */
tokens: number | null, };

/** Whether a client's file names us. */
export type ClientState = { "type": "not_connected" } | { "type": "connected",
/** Under this name. */
name: string, } | { "type": "extension",
/** The extension's manifest. */
manifest: string, } | { "type": "lost" } | { "type": "changed" } | { "type": "shadowed",
/** The one it reads. */
by: string, } | { "type": "name_taken" } | { "type": "forbidden",
/** Who says so, and where. */
reason: string, } | { "type": "several",
/** These. */
files: Array<string>, } | { "type": "unreadable",
/** Line, from 1. */
line: number | null,
/** Column, from 1. */
column: number | null,
/** Why. */
message: string,
/** A byte order mark is all that is wrong, and connecting may take it out. */
markOnly: boolean, };

/** One client attached through a sidecar. */
export type Connection = {
/** Identifier. */
id: string,
/** As the client calls itself, such as `claude-desktop`. */
client: string,
/** Its version, when it says so. */
version: string | null,
/** Protocol revision in use. */
revision: string | null,
/** Process of the sidecar. */
pid: number,
/** Working directory of the sidecar. */
cwd: string | null,
/** Since when. */
sinceAt: number, };

/** A container engine found on this machine. */
export type ContainerEngine = {
/** `Podman`, `Docker Desktop`, `Colima` and so on. */
name: string,
/** Its version. */
version: string | null,
/** Where it listens. */
socket: string,
/** It runs as the user. */
rootless: boolean,
/** Whether it can be used. */
state: EngineState,
/** It is the one in use. */
inUse: boolean, };

/** A file of the diagnostics bundle, as it would be saved. */
export type DiagnosticsFile = {
/** Its name in the bundle. */
name: string,
/** What it holds, redacted. */
text: string, };

/** The user's choice of engine. */
export type EngineChoice = "auto" | "podman" | "docker";

/** Whether an engine can be used. */
export type EngineState = { "type": "running" } | { "type": "stopped" } | { "type": "failed",
/** Why. */
error: ApiError, };

/** An entry of a file that could not be read. */
export type EntryProblem = {
/** The client whose file it is. */
client: string,
/** The file. */
path: string,
/** Line, from 1. */
line: number | null,
/** Column, from 1. */
column: number | null,
/** The entry, when the rest of the file could be read. */
entry: string | null,
/** What is wrong. */
message: string, };

/** What kind of error. The window and the tests branch on it, never on text. */
export type ErrorCode = "python_error" | "tool_failed" | "tool_timeout" | "tool_not_found" | "tool_denied" | "invalid_arguments" | "run_timeout" | "run_out_of_memory" | "run_cancelled" | "run_not_found" | "question_not_found" | "sandbox_unavailable" | "image_missing" | "wasi_module_missing" | "limit_not_enforced" | "server_unreachable" | "server_auth_required" | "server_protocol" | "server_not_found" | "server_exists" | "entry_unreadable" | "client_config_conflict" | "client_not_found" | "client_file_unreadable" | "client_refused" | "settings_invalid" | "settings_newer" | "secret_missing" | "secret_store_locked" | "memory_full" | "memory_not_found" | "memory_conflict" | "memory_invalid" | "bridge_restarted" | "bridge_busy" | "update_failed" | "internal";

/** What was just forgotten. It can be had back until the program ends or 20 others are forgotten. */
export type Forgotten = {
/** For `undo_forget`. */
undoId: string, };

/** The image in the engine. */
export type ImageState = { "type": "unknown" } | { "type": "missing" } | { "type": "pulling",
/** Bytes so far. */
doneBytes: number,
/** Bytes in all, once known. */
totalBytes: number | null, } | { "type": "present",
/** Its digest. */
digest: string,
/** Its size. */
sizeBytes: number, } | { "type": "failed",
/** Why. */
error: ApiError, };

/** What an import does with what is there. */
export type ImportMode = "keep" | "replace";

/** What an import did. */
export type ImportReport = {
/** Keys that were new. */
added: number,
/** Keys that got another value. */
replaced: number,
/** Keys that stayed as they were. */
kept: number, };

/** One of them. */
export type InstalledPackage = {
/** Its name. */
name: string,
/** Its version. */
version: string,
/** Of its wheel. */
sizeBytes: number,
/** The host that it came from. */
index: string,
/** Nobody asked for it by name: another one needs it, or did. */
needed: boolean, };

/** A live Python with its variables. */
export type Interpreter = {
/** Identifier. */
id: string,
/** The client it belongs to; `runbridge` for the window's own. */
client: string,
/** The connection it belongs to. */
connectionId: string | null,
/** Its name among those of the connection. */
session: string | null,
/** Where it runs. */
kind: SandboxKind,
/** Since when. */
startedAt: number,
/** Since when it has done nothing; `None` while it runs something. */
idleSinceAt: number | null,
/** Runs it has done. */
runs: number,
/** The memory limit it was started with. */
memoryBytesMax: number, };

/** How bad something is. */
export type Level = "warning" | "error";

/** The licence of a part that this program contains. */
export type Licence = {
/** The part. */
name: string,
/** Its version. */
version: string,
/** SPDX expression. */
licence: string, };

/** A bound that is enforced: one row of the table of limits, with its value. */
export type Limit = {
/** Name in the table and in the settings file. */
name: string,
/** What it is, in one line. */
about: string,
/** Where a window shows it. */
group: LimitGroup,
/** What the numbers count. */
unit: LimitUnit,
/** In force now. */
value: number,
/** In force unless someone says otherwise. */
default: number,
/** Smallest; the same as `ceiling` where nobody can change the limit. */
min: number,
/** Largest that a slider offers. */
usualMax: number,
/** Largest that may be typed. */
ceiling: number,
/** The variable that sets it, if there is one. */
variable: string | null,
/** Who set the value. */
setBy: SetBy, };

/** Where a window shows a limit. */
export type LimitGroup = "run" | "sandbox" | "calls" | "memory";

/** What a limit's numbers count. */
export type LimitUnit = "milliseconds" | "bytes" | "cpu_thousandths" | "count" | "characters";

/** A line that a server logged over the protocol. */
export type LogLine = {
/** The server. */
server: string,
/** When it came. */
at: number,
/** How much it matters. */
severity: Severity,
/** What part of the server logged it, if it says so. */
logger: string | null,
/** What it says, cut. */
text: string, };

/** What one interpreter uses. */
export type Measure = {
/** The interpreter. */
interpreterId: string,
/** Memory. */
memoryBytes: number,
/** Thousandths of one CPU since the last measure; `None` when the backend cannot tell. */
cpuThousandths: number | null, };

/** A memory item without its value. */
export type MemoryInfo = {
/** Its key. */
key: string,
/** Size of the value. */
sizeBytes: number,
/** The start of the value's JSON, for the list. */
preview: string,
/** First saved. */
createdAt: number,
/** Last saved. */
updatedAt: number,
/** Last loaded, when that is known. */
usedAt: number | null,
/** Counts the saves. */
version: number,
/** The client that saved it last. */
client: string | null,
/** The set of variables that saved it last. */
session: string | null,
/** Its file cannot be read: why. */
damaged: ApiError | null, };

/** A memory item with its value. */
export type MemoryItem = {
/** The rest. */
info: MemoryInfo,
/** The value as JSON text. */
value: string,
/** The metadata as JSON text. */
metadata: string | null, };

/** By what memory items are sorted. */
export type MemoryOrder = "key" | "size" | "updated" | "used";

/** Some memory items. */
export type MemoryPage = {
/** The items. */
items: Array<MemoryInfo>,
/** How many match in all. */
total: number, };

/** How much is remembered. */
export type MemoryTotals = {
/** Items. */
items: number,
/** Their size. */
sizeBytes: number,
/** Saved tools. */
savedTools: number, };

/** A server to add, as the window's form gives it. It may carry secrets, so it travels one way only. */
export type NewServer = {
/** Its name. */
name: string,
/** How to reach it. */
transport: NewTransport,
/** Environment of a process, headers of a remote server. */
variables: Array<NewVariable>, };

/** How to reach a server that is to be added. */
export type NewTransport = { "type": "stdio",
/** Program. */
command: string,
/** Its arguments. */
args: Array<string>,
/** Working directory. */
cwd: string | null, } | { "type": "http",
/** Its address. */
url: string,
/** It speaks the older HTTP with server-sent events. */
sse: boolean, };

/** A variable of a server that is to be added. `Debug` hides the value. */
export type NewVariable = {
/** Its name. */
name: string,
/** Its value. */
value: string,
/** Keep it in the secret store. */
secret: boolean, };

/** Packages that code had installed, for all sessions. */
export type Packages = {
/** The choice. */
policy: PackagesPolicy,
/** The host that they come from; `None`: none is known. */
index: string | null,
/** By name. */
installed: Array<InstalledPackage>, };

/** Whether code may have packages installed. */
export type PackagesPolicy = "off" | "ask" | "allow";

/** What a pasted piece of some client's JSON says. */
export type ParsedServers = {
/** Servers it names, with the variables that look like secrets marked so. */
servers: Array<NewServer>,
/** What could not be read. */
problems: Array<EntryProblem>, };

/** A place that the window can open in the system's file manager. */
export type Place = "settings" | "state" | "data" | "logs";

/** A question that waits for the user. */
export type Question = {
/** Identifier. */
id: string,
/** The run that waits for the answer. */
runId: string,
/** Whose run that is. */
client: string,
/** Who asks. */
server: string,
/** Its words. */
message: string,
/** How to answer. */
way: QuestionWay,
/** Since when it waits. */
askedAt: number,
/** When it is given up. */
expiresAt: number, };

/** What the user says to a question. */
export type QuestionAnswer = { "type": "accept",
/** The fields by name, as the text of a JSON object. */
values: string, } | { "type": "decline" } | { "type": "dismiss" };

/** One field of a form. */
export type QuestionField = {
/** Its name in the answer. */
name: string,
/** Its name for people. */
label: string,
/** What the server says of it. */
about: string | null,
/** There is no answer without it. */
required: boolean,
/** What goes into it. */
input: QuestionInput, };

/** What goes into a field. Numbers travel as their text. */
export type QuestionInput = { "type": "text",
/** What kind of text. */
format: TextFormat | null,
/** The shortest. */
charsMin: number,
/** The longest. */
charsMax: number,
/** What it begins with. */
value: string, } | { "type": "number",
/** Without a fraction. */
whole: boolean,
/** The smallest. */
min: string | null,
/** The largest. */
max: string | null,
/** What it begins with. */
value: string, } | { "type": "flag",
/** What it begins with. */
value: boolean, } | { "type": "choice",
/** Which. */
choices: Array<Choice>,
/** What it begins with; `None`: nothing is chosen. */
value: string | null, } | { "type": "choices",
/** Which. */
choices: Array<Choice>,
/** The fewest. */
countMin: number,
/** The most. */
countMax: number,
/** What it begins with. */
value: Array<string>, };

/** How a question is answered. */
export type QuestionWay = { "type": "form",
/** In their order. */
fields: Array<QuestionField>, } | { "type": "page",
/** Its address. */
url: string,
/** The host of that address, which says whose page it is. */
host: string, };

/** One run without its code and output. */
export type Run = {
/** Identifier. */
id: string,
/** The client that asked; `runbridge` for the window's own. */
client: string,
/** The connection that asked. */
connectionId: string | null,
/** The set of variables it ran with. */
session: string | null,
/** The first line of the code that says something. */
title: string,
/** How it stands. */
status: RunStatus,
/** When it was asked for. */
startedAt: number,
/** How long it took; `None` until it ended. */
durationMs: number | null,
/** Servers it called. */
servers: Array<string>,
/** Calls it made. */
calls: number,
/** Calls of them that failed. */
callsFailed: number,
/** Where it ran. */
kind: SandboxKind | null,
/** The most memory it used, where that can be measured. */
memoryBytesPeak: number | null,
/** Tokens of the reply. */
replyTokens: number | null,
/** Tokens that the tool definitions and results of the same calls would have cost without the bridge. */
directTokens: number | null, };

/** The last run of a page; the next page begins behind it. */
export type RunCursor = {
/** When it was asked for. */
startedAt: number,
/** Its identifier. */
id: string, };

/** A run whole. Long texts are cut at the record's bounds and say so. */
export type RunDetail = {
/** The run. */
run: Run,
/** Its code. */
code: string,
/** What it printed. */
stdout: string,
/** What it wrote to stderr. */
stderr: string,
/** Value of the last expression. */
result: string | null,
/** Why it did not end well; the message holds the traceback. */
error: ApiError | null,
/** Characters of output that the record left out. */
charsLeftOut: number,
/** Its calls in the order they began. */
calls: Array<Call>,
/** What servers logged of its calls. */
log: Array<LogLine>,
/** The number of the last event that is contained, so that later output is added once. */
seq: number, };

/** Which runs of the past to read; `None` and empty text ask for all. */
export type RunFilter = {
/** Of this client. */
client: string | null,
/** That called this server. */
server: string | null,
/** That ended so. */
status: RunStatus | null,
/** Whose code or output contains this. */
text: string, };

/** Some runs of the past, the newest first. */
export type RunPage = {
/** The runs. */
runs: Array<Run>,
/** How many there are in all. */
total: number,
/** Where the next page begins; `None` at the end. */
next: RunCursor | null,
/** Every client with a run on record, for the filter. */
clients: Array<string>, };

/** How a run stands. */
export type RunStatus = "queued" | "running" | "success" | "error" | "timeout" | "cancelled" | "out_of_memory" | "validation_error" | "interrupted";

/** A backend that is in use. */
export type SandboxKind = "container" | "wasi";

/** What came of the choice. */
export type SandboxState = { "type": "preparing" } | { "type": "ready",
/** In which. */
kind: SandboxKind,
/** Its user on this machine is not root; the built-in one never is. */
rootless: boolean, } | { "type": "unavailable",
/** Why. */
error: ApiError, };

/** Where Python runs, measured and not assumed. */
export type SandboxStatus = {
/** The choice. */
backend: Backend,
/** The choice of engine. */
engine: EngineChoice,
/** The image to use, by name or digest. */
image: string,
/** What came of the choice. */
state: SandboxState,
/** Engines found on this machine, the one in use first. */
engines: Array<ContainerEngine>,
/** The image in the engine in use. */
imageState: ImageState,
/** The built-in Python. */
wasi: WasiState,
/** Python's version inside, once a guest said so. */
python: string | null,
/** Limits that this sandbox does not enforce, and other things to know. */
warnings: Array<ApiError>,
/** Packages that code had installed. */
packages: Packages, };

/** A function that a model saved for later sessions. */
export type SavedTool = {
/** Its name. */
name: string,
/** Its first line of documentation. */
summary: string,
/** Its source. */
source: string,
/** Last saved. */
updatedAt: number,
/** The client that saved it. */
client: string | null,
/** It cannot be loaded: why. */
damaged: ApiError | null, };

/** Tokens that stayed out of the models' context since midnight. */
export type Savings = {
/** Runs since midnight. */
runsToday: number,
/** Calls since midnight. */
callsToday: number,
/** Tokens of tool definitions that clients did not have to read. */
definitionsTokens: number,
/** Tokens of results that stayed in the sandbox. */
resultsTokens: number, };

/** Where secrets are kept. */
export type SecretStore = {
/** Which place. */
kind: SecretStoreKind,
/** Why it is not the keyring, or why it does not open. */
error: ApiError | null, };

/** A place for secrets. */
export type SecretStoreKind = "keyring" | "encrypted_file";

/** What has ever happened here. */
export type Seen = {
/** A client was connected. */
client: boolean,
/** A run ended well, whether a client or the window asked for it. */
run: boolean, };

/** An MCP server that a file names. */
export type Server = {
/** Its name, unique. */
name: string,
/** Its name in Python. */
alias: string,
/** What the server or the file says of it. */
description: string | null,
/** How it is reached. */
transport: Transport,
/** Command line or address, without secrets. */
target: string,
/** Where it was found; the first one won. */
sources: Array<Source>,
/** It was added in this window and can be removed here. */
own: boolean,
/** Whether runs may call it. */
enabled: boolean,
/** Why it is off, when the user did not decide so here. */
offReason: string | null,
/** What it does now. */
state: ServerState,
/** Protocol revision in use. */
revision: string | null,
/** Since when its process runs. */
startedAt: number | null,
/** How long the last start took. */
startMs: number | null,
/** Its process. */
pid: number | null,
/** Memory of its processes. */
memoryBytes: number | null,
/** Tools known. */
toolsCount: number,
/** Tools that runs may call. */
toolsEnabled: number,
/** Tokens that all its tool definitions would cost a model. */
tokens: number,
/** Calls since midnight. */
callsToday: number,
/** What is odd about it, in words. */
notes: Array<string>, };

/** A server with what only its own page shows. */
export type ServerDetail = {
/** The server. */
server: Server,
/** Its tools in the order that it lists them; without their schemas. */
tools: Array<Tool>,
/** Its environment or headers. */
variables: Array<Variable>,
/** Working directory. */
cwd: string | null,
/** What the server says of its use. */
instructions: string | null, };

/** The last words of a server. */
export type ServerOutput = {
/** The end of what it wrote to stderr. */
stderr: string,
/** The last lines that it logged over the protocol. */
log: Array<LogLine>, };

/** What a server does now. */
export type ServerState = { "type": "stopped" } | { "type": "starting" } | { "type": "ready" } | { "type": "failed",
/** Why. */
error: ApiError,
/** When the next one is due. */
retryAt: number | null, } | { "type": "needs_value",
/** Names of variables and inputs. */
names: Array<string>, } | { "type": "needs_sign_in" };

/** Who set a value. */
export type SetBy = "default" | "settings" | "variable";

/** Settings to change; `None` leaves one as it is. */
export type SettingsPatch = {
/** Start with the computer. */
launchAtLogin?: boolean,
/** Tell about what needs the user. */
notifications?: boolean,
/** Look for updates by itself. */
checkForUpdates?: boolean,
/** Light or dark. */
appearance?: Appearance,
/** Days that a run stays on record. */
keepRunsDays?: number,
/** Runs that stay on record. */
keepRunsMax?: number, };

/** How much a line of a log matters, in the protocol's words. */
export type Severity = "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency";

/** An entry that was left out on purpose. */
export type SkippedEntry = {
/** Where it is. */
source: Source,
/** Why, in words. */
reason: string, };

/** Where an entry came from. */
export type Source = {
/** The client's identifier, `drop-folder` or `runbridge`. */
client: string,
/** The file. */
path: string,
/** The entry's name there. */
name: string, };

/**
 * All that a window shows without asking further. Long lists (runs of the past, memory items, tools of
 * a server) are read by page.
 */
export type State = {
/** Number of the last event that is already contained. */
seq: number,
/** This program and its places. */
app: AppInfo,
/** The user's decisions that are not limits. */
settings: AppSettings,
/** Every limit with its value and its range. */
limits: Array<Limit>,
/** While true, no run starts and no tool is called. */
paused: boolean,
/** What needs the user, the worst first. */
attention: Array<Attention>,
/** Clients attached now, the oldest first. */
connections: Array<Connection>,
/** Servers, by name. */
servers: Array<Server>,
/** Entries that could not be read. */
problems: Array<EntryProblem>,
/** Entries that were left out on purpose. */
skipped: Array<SkippedEntry>,
/** Where Python runs. */
sandbox: SandboxStatus,
/** Interpreters alive now. */
interpreters: Array<Interpreter>,
/** Runs that are queued or running, the oldest first. */
runs: Array<Run>,
/** What servers ask the user, the oldest first. */
questions: Array<Question>,
/** What has ever happened here, for the list of first steps. */
seen: Seen,
/** Tokens that stayed out of the models' context today. */
savings: Savings,
/** How much is remembered. */
memory: MemoryTotals, };

/** Where a run wrote. */
export type Stream = "stdout" | "stderr";

/** The thing that needs the user; the window leads there. */
export type Subject = { "type": "sandbox" } | { "type": "server",
/** Its name. */
name: string, } | { "type": "entry",
/** The file. */
path: string, } | { "type": "settings" } | { "type": "secrets" } | { "type": "memory" } | { "type": "update" } | { "type": "client",
/** The client. */
client: string, };

/** What kind of text a field takes. */
export type TextFormat = "email" | "uri" | "date" | "date_time";

/** A tool without its schema. */
export type Tool = {
/** Its name. */
name: string,
/** The first line of its description. */
summary: string,
/** Whether runs may call it. */
enabled: boolean,
/** The client's file denies it, so that it cannot be enabled here. */
deniedBySource: boolean,
/** Tokens that its definition would cost a model. */
tokens: number,
/** It says that it only reads. */
readOnly: boolean, };

/** A tool whole. */
export type ToolDetail = {
/** Its name. */
name: string,
/** Its description. */
description: string,
/** As Python sees it. */
signature: string,
/** Schema of its arguments, as JSON text. */
inputSchema: string,
/** Schema of its value, as JSON text. */
outputSchema: string | null, };

/** How a server is reached. */
export type Transport = "stdio" | "http" | "sse";

/** Whether a newer version is there. */
export type UpdateState = { "type": "off" } | { "type": "unknown" } | { "type": "checking" } | { "type": "current",
/** When that was seen. */
checkedAt: number, } | { "type": "available",
/** Its version. */
version: string,
/** What is new. */
notes: string, } | { "type": "downloading",
/** Bytes so far. */
doneBytes: number,
/** Bytes in all, once known. */
totalBytes: number | null, } | { "type": "installed",
/** Its version. */
version: string, } | { "type": "failed",
/** Why. */
error: ApiError, };

/** A variable of the environment, or a header. */
export type Variable = {
/** Its name. */
name: string,
/** Its value; `None` when it is secret or missing. */
value: string | null,
/** It is kept in the secret store or looks like a secret. */
secret: boolean,
/** It has no value yet. */
missing: boolean, };

/** The built-in Python. */
export type WasiState = { "type": "ready",
/** Python's version. */
python: string, } | { "type": "preparing" } | { "type": "unavailable",
/** Why. */
error: ApiError, };

/** Every command with its arguments and its result. */
export interface Commands {
  /** All that the window shows. */
  get_state: { arguments: Record<string, never>; result: State };
  /** Stops all runs and calls, and lets none begin, or lets them begin again. */
  set_paused: { arguments: { paused: boolean }; result: null };
  /** Lets runs call a server, or not. */
  set_server_enabled: { arguments: { server: string; enabled: boolean }; result: null };
  /** Lets runs call a tool, or not. */
  set_tool_enabled: { arguments: { server: string; tool: string; enabled: boolean }; result: null };
  /** The same for all tools of a server that its source does not deny. */
  set_all_tools_enabled: { arguments: { server: string; enabled: boolean }; result: null };
  /** Starts a server now, after stopping it if it runs; a backoff is forgotten. */
  restart_server: { arguments: { server: string }; result: null };
  /** Opens the sign-in page of a server in the user's browser. */
  sign_in_server: { arguments: { server: string }; result: null };
  /** A server with its tools and variables. */
  read_server: { arguments: { server: string }; result: ServerDetail };
  /** The last words of a server. */
  read_server_output: { arguments: { server: string }; result: ServerOutput };
  /** Has a server's new words told as `server_output` changes, or no longer; one server at a time, and it ends with the window, too. */
  watch_server_output: { arguments: { server: string; on: boolean }; result: null };
  /** A tool with its schema. */
  read_tool: { arguments: { server: string; tool: string }; result: ToolDetail };
  /** Gives a variable of a server a value, which goes to the secret store and never comes back. */
  set_server_secret: { arguments: { server: string; name: string; value: string }; result: null };
  /** Reads a piece of any client's JSON without changing anything. */
  parse_servers: { arguments: { text: string }; result: ParsedServers };
  /** Adds a server to our own settings. */
  add_server: { arguments: { server: NewServer }; result: null };
  /** Removes a server that was added here, with its secrets. */
  remove_server: { arguments: { server: string }; result: null };
  /** Every client on this machine, and how things stand with it. */
  read_clients: { arguments: Record<string, never>; result: Array<Client> };
  /** What an action would change; `file` says which of several files is meant, `drop_mark` consents to taking out a byte order mark that the client cannot read. */
  plan_client: { arguments: { client: string; action: ClientAction; file: string | null; dropMark: boolean }; result: ClientPlan };
  /** Makes the change that was planned and looked at, or none; `keep` asks that our entry be put back whenever it is lost. */
  change_client: { arguments: { client: string; action: ClientAction; file: string | null; dropMark: boolean; keep: boolean; seen: string }; result: Client };
  /** Puts our entry back whenever it is lost, or no longer. */
  keep_client: { arguments: { client: string; keep: boolean }; result: null };
  /** Lets the servers of a client keep their names before those of other clients, or no longer. */
  prefer_client: { arguments: { client: string; preferred: boolean }; result: null };
  /** Shows a client's file in the system's file manager. */
  show_client_file: { arguments: { client: string; file: string | null }; result: null };
  /** Chooses the backend. */
  set_backend: { arguments: { backend: Backend }; result: null };
  /** Chooses the engine. */
  set_engine: { arguments: { engine: EngineChoice }; result: null };
  /** Chooses the image. */
  set_image: { arguments: { image: string }; result: null };
  /** Chooses whether code may have packages installed. */
  set_packages_policy: { arguments: { policy: PackagesPolicy }; result: null };
  /** Takes an installed package away from sessions that begin after this. */
  remove_package: { arguments: { name: string }; result: null };
  /** Pulls the image; how far it got comes as `sandbox` changes. */
  pull_image: { arguments: Record<string, never>; result: null };
  /** Looks for engines again. */
  check_sandbox: { arguments: Record<string, never>; result: null };
  /** Sets a limit for the next run; 0 of CPUs sets none. */
  set_limit: { arguments: { name: string; value: number }; result: Limit };
  /** Puts a limit back to its default. */
  reset_limit: { arguments: { name: string }; result: Limit };
  /** Runs code in an interpreter of the window's own; gives the run's identifier at once. */
  run_code: { arguments: { code: string }; result: string };
  /** Ends an interpreter and its variables. */
  stop_interpreter: { arguments: { id: string }; result: null };
  /** Has what interpreters use measured once a second, or no longer; it ends with the window, too. */
  watch_interpreters: { arguments: { on: boolean }; result: null };
  /** Some memory items whose key or value contains a text. */
  read_memory: { arguments: { text: string; order: MemoryOrder; offset: number; limit: number }; result: MemoryPage };
  /** A memory item with its value. */
  read_memory_item: { arguments: { key: string }; result: MemoryItem };
  /** Gives an item a value, if its version is still the expected one; `None` expects no such item. */
  save_memory_item: { arguments: { key: string; value: string; expectedVersion: number | null }; result: MemoryInfo };
  /** Forgets an item; `undo_forget` brings it back. */
  forget_memory_item: { arguments: { key: string }; result: Forgotten };
  /** Every saved tool. */
  read_saved_tools: { arguments: Record<string, never>; result: Array<SavedTool> };
  /** Forgets a saved tool; `undo_forget` brings it back. */
  forget_saved_tool: { arguments: { name: string }; result: Forgotten };
  /** Brings back what was forgotten. */
  undo_forget: { arguments: { undoId: string }; result: null };
  /** Saves all memory items to a file; gives its path. */
  export_memory: { arguments: Record<string, never>; result: string | null };
  /** Takes memory items from a file. */
  import_memory: { arguments: { mode: ImportMode }; result: ImportReport | null };
  /** Some runs that have ended, the newest first. */
  read_runs: { arguments: { filter: RunFilter; after: RunCursor | null; limit: number }; result: RunPage };
  /** A run with its code, output and calls, ended or not. */
  read_run: { arguments: { id: string }; result: RunDetail };
  /** Stops a run. */
  stop_run: { arguments: { id: string }; result: null };
  /** Answers what a server asks, and opens its page in the user's browser if that is the answer. */
  answer_question: { arguments: { id: string; answer: QuestionAnswer }; result: null };
  /** Saves the record of the runs that a filter lets through; gives the file's path. */
  export_runs: { arguments: { filter: RunFilter }; result: string | null };
  /** Forgets every run that has ended. */
  clear_runs: { arguments: Record<string, never>; result: null };
  /** Changes settings. */
  change_settings: { arguments: { patch: SettingsPatch }; result: null };
  /** Looks for a newer version; what came of it comes as an `app` change. */
  check_for_update: { arguments: Record<string, never>; result: null };
  /** Loads and installs the newer version. */
  install_update: { arguments: Record<string, never>; result: null };
  /** Ends the program and starts it again. */
  restart_app: { arguments: Record<string, never>; result: null };
  /** Opens one of our places in the system's file manager. */
  open_place: { arguments: { place: Place }; result: null };
  /** What a diagnostics bundle would hold. */
  read_diagnostics: { arguments: Record<string, never>; result: Array<DiagnosticsFile> };
  /** Saves that bundle; gives its path. */
  save_diagnostics: { arguments: Record<string, never>; result: string | null };
  /** Licences of all parts. */
  read_licences: { arguments: Record<string, never>; result: Array<Licence> };
}

/** The name of the one event; its payload is a BridgeEvent. */
export const EVENT = 'bridge';
