//! The commands that a window may send: name, arguments, result. One table, from which the names are
//! taken and the window's types are made; it knows nothing of who answers them.
//!
//! A command that fails gives an [`ApiError`](super::ApiError). `()` reaches the window as `null`. Argument
//! names reach it in `camelCase`. Where a file is to be chosen, the command shows the system's dialog
//! itself and gives `None` when the user changed their mind: the window never names paths.

#[cfg(feature = "bindings")]
use super::{
    Backend, Client, ClientAction, ClientPlan, DiagnosticsFile, EngineChoice, Forgotten,
    ImportMode, ImportReport, Licence, Limit, MemoryInfo, MemoryItem, MemoryOrder, MemoryPage,
    NewServer, PackagesPolicy, ParsedServers, Place, QuestionAnswer, RunCursor, RunDetail,
    RunFilter, RunPage, SavedTool, ServerDetail, ServerOutput, SettingsPatch, State, ToolDetail,
};

macro_rules! commands {
    ($($(#[doc = $about:literal])* $name:ident { $($argument:ident: $type:ty),* } -> $result:ty;)*) => {
        /// Every command's name.
        pub const COMMANDS: &[&str] = &[$(stringify!($name)),*];

        /// One entry per command for the window's types.
        #[cfg(feature = "bindings")]
        pub(super) fn signatures(visit: &mut impl super::bindings::Signatures) {
            $(
                visit.command(stringify!($name), concat!($($about),*).trim());
                $(visit.argument::<$type>(stringify!($argument));)*
                visit.result::<$result>();
            )*
        }
    };
}

commands! {
    /// All that the window shows.
    get_state {} -> State;
    /// Stops all runs and calls, and lets none begin, or lets them begin again.
    set_paused { paused: bool } -> ();

    /// Lets runs call a server, or not.
    set_server_enabled { server: String, enabled: bool } -> ();
    /// Lets runs call a tool, or not.
    set_tool_enabled { server: String, tool: String, enabled: bool } -> ();
    /// The same for all tools of a server that its source does not deny.
    set_all_tools_enabled { server: String, enabled: bool } -> ();
    /// Starts a server now, after stopping it if it runs; a backoff is forgotten.
    restart_server { server: String } -> ();
    /// Opens the sign-in page of a server in the user's browser.
    sign_in_server { server: String } -> ();
    /// A server with its tools and variables.
    read_server { server: String } -> ServerDetail;
    /// The last words of a server.
    read_server_output { server: String } -> ServerOutput;
    /// Has a server's new words told as `server_output` changes, or no longer; one server at a time, and it
    /// ends with the window, too.
    watch_server_output { server: String, on: bool } -> ();
    /// A tool with its schema.
    read_tool { server: String, tool: String } -> ToolDetail;
    /// Gives a variable of a server a value, which goes to the secret store and never comes back.
    set_server_secret { server: String, name: String, value: String } -> ();
    /// Reads a piece of any client's JSON without changing anything.
    parse_servers { text: String } -> ParsedServers;
    /// Adds a server to our own settings.
    add_server { server: NewServer } -> ();
    /// Removes a server that was added here, with its secrets.
    remove_server { server: String } -> ();

    /// Every client on this machine, and how things stand with it.
    read_clients {} -> Vec<Client>;
    /// What an action would change; `file` says which of several files is meant, `drop_mark` consents to
    /// taking out a byte order mark that the client cannot read.
    plan_client { client: String, action: ClientAction, file: Option<String>, drop_mark: bool } -> ClientPlan;
    /// Makes the change that was planned and looked at, or none; `keep` asks that our entry be put back
    /// whenever it is lost.
    change_client { client: String, action: ClientAction, file: Option<String>, drop_mark: bool, keep: bool, seen: String } -> Client;
    /// Puts our entry back whenever it is lost, or no longer.
    keep_client { client: String, keep: bool } -> ();
    /// Lets the servers of a client keep their names before those of other clients, or no longer.
    prefer_client { client: String, preferred: bool } -> ();
    /// Shows a client's file in the system's file manager.
    show_client_file { client: String, file: Option<String> } -> ();

    /// Chooses the backend.
    set_backend { backend: Backend } -> ();
    /// Chooses the engine.
    set_engine { engine: EngineChoice } -> ();
    /// Chooses the image.
    set_image { image: String } -> ();
    /// Chooses whether code may have packages installed.
    set_packages_policy { policy: PackagesPolicy } -> ();
    /// Takes an installed package away from sessions that begin after this.
    remove_package { name: String } -> ();
    /// Pulls the image; how far it got comes as `sandbox` changes.
    pull_image {} -> ();
    /// Looks for engines again.
    check_sandbox {} -> ();
    /// Sets a limit for the next run; 0 of CPUs sets none.
    set_limit { name: String, value: u64 } -> Limit;
    /// Puts a limit back to its default.
    reset_limit { name: String } -> Limit;
    /// Runs code in an interpreter of the window's own; gives the run's identifier at once.
    run_code { code: String } -> String;
    /// Ends an interpreter and its variables.
    stop_interpreter { id: String } -> ();
    /// Has what interpreters use measured once a second, or no longer; it ends with the window, too.
    watch_interpreters { on: bool } -> ();

    /// Some memory items whose key or value contains a text.
    read_memory { text: String, order: MemoryOrder, offset: u64, limit: u32 } -> MemoryPage;
    /// A memory item with its value.
    read_memory_item { key: String } -> MemoryItem;
    /// Gives an item a value, if its version is still the expected one; `None` expects no such item.
    save_memory_item { key: String, value: String, expected_version: Option<u64> } -> MemoryInfo;
    /// Forgets an item; `undo_forget` brings it back.
    forget_memory_item { key: String } -> Forgotten;
    /// Every saved tool.
    read_saved_tools {} -> Vec<SavedTool>;
    /// Forgets a saved tool; `undo_forget` brings it back.
    forget_saved_tool { name: String } -> Forgotten;
    /// Brings back what was forgotten.
    undo_forget { undo_id: String } -> ();
    /// Saves all memory items to a file; gives its path.
    export_memory {} -> Option<String>;
    /// Takes memory items from a file.
    import_memory { mode: ImportMode } -> Option<ImportReport>;

    /// Some runs that have ended, the newest first.
    read_runs { filter: RunFilter, after: Option<RunCursor>, limit: u32 } -> RunPage;
    /// A run with its code, output and calls, ended or not.
    read_run { id: String } -> RunDetail;
    /// Stops a run.
    stop_run { id: String } -> ();
    /// Answers what a server asks, and opens its page in the user's browser if that is the answer.
    answer_question { id: String, answer: QuestionAnswer } -> ();
    /// Saves the record of the runs that a filter lets through; gives the file's path.
    export_runs { filter: RunFilter } -> Option<String>;
    /// Forgets every run that has ended.
    clear_runs {} -> ();

    /// Changes settings.
    change_settings { patch: SettingsPatch } -> ();
    /// Looks for a newer version; what came of it comes as an `app` change.
    check_for_update {} -> ();
    /// Loads and installs the newer version.
    install_update {} -> ();
    /// Ends the program and starts it again.
    restart_app {} -> ();
    /// Opens one of our places in the system's file manager.
    open_place { place: Place } -> ();
    /// What a diagnostics bundle would hold.
    read_diagnostics {} -> Vec<DiagnosticsFile>;
    /// Saves that bundle; gives its path.
    save_diagnostics {} -> Option<String>;
    /// Licences of all parts.
    read_licences {} -> Vec<Licence>;
}
