//! What the window may ask: one line each into the core's desk. Where a file is to be chosen, the
//! system's dialog is shown first; the window never names a path.
//!
//! All of them are `async`, so that none holds up the thread that draws.
#![allow(
    clippy::unused_async,
    clippy::needless_pass_by_value,
    reason = "Tauri runs the others on the main thread, and hands arguments over"
)]

use runbridge_core::api::{
    self, Backend, Client, ClientAction, ClientPlan, DiagnosticsFile, EngineChoice, Forgotten,
    ImportMode, ImportReport, Licence, Limit, MemoryInfo, MemoryItem, MemoryOrder, MemoryPage,
    NewServer, PackagesPolicy, ParsedServers, Place, QuestionAnswer, RunCursor, RunDetail,
    RunFilter, RunPage, SavedTool, ServerDetail, ServerOutput, SettingsPatch, ToolDetail,
};
use runbridge_core::desk::Answer;
use tauri::ipc::Invoke;
use tauri::{AppHandle, State};

use crate::served::Served;
use crate::{dialogs, updates};

type Desk<'a> = State<'a, Served>;

/// Answers every command.
pub(crate) fn handler() -> impl Fn(Invoke) -> bool + Send + Sync + 'static {
    tauri::generate_handler![
        get_state,
        set_paused,
        set_server_enabled,
        set_tool_enabled,
        set_all_tools_enabled,
        restart_server,
        sign_in_server,
        read_server,
        read_server_output,
        watch_server_output,
        read_tool,
        set_server_secret,
        parse_servers,
        add_server,
        remove_server,
        read_clients,
        plan_client,
        change_client,
        keep_client,
        prefer_client,
        show_client_file,
        set_backend,
        set_engine,
        set_image,
        set_packages_policy,
        remove_package,
        pull_image,
        check_sandbox,
        set_limit,
        reset_limit,
        run_code,
        stop_interpreter,
        watch_interpreters,
        read_memory,
        read_memory_item,
        save_memory_item,
        forget_memory_item,
        read_saved_tools,
        forget_saved_tool,
        undo_forget,
        export_memory,
        import_memory,
        read_runs,
        read_run,
        stop_run,
        answer_question,
        export_runs,
        clear_runs,
        change_settings,
        check_for_update,
        install_update,
        restart_app,
        open_place,
        read_diagnostics,
        save_diagnostics,
        read_licences,
    ]
}

#[tauri::command]
pub(crate) async fn get_state(desk: Desk<'_>) -> Answer<api::State> {
    desk.desk().get_state().await
}

#[tauri::command]
pub(crate) async fn set_paused(desk: Desk<'_>, paused: bool) -> Answer<()> {
    desk.desk().set_paused(paused);
    Ok(())
}

#[tauri::command]
pub(crate) async fn set_server_enabled(
    desk: Desk<'_>,
    server: String,
    enabled: bool,
) -> Answer<()> {
    desk.desk().set_server_enabled(server, enabled).await
}

#[tauri::command]
pub(crate) async fn set_tool_enabled(
    desk: Desk<'_>,
    server: String,
    tool: String,
    enabled: bool,
) -> Answer<()> {
    desk.desk().set_tool_enabled(server, tool, enabled).await
}

#[tauri::command]
pub(crate) async fn set_all_tools_enabled(
    desk: Desk<'_>,
    server: String,
    enabled: bool,
) -> Answer<()> {
    desk.desk().set_all_tools_enabled(server, enabled).await
}

#[tauri::command]
pub(crate) async fn restart_server(desk: Desk<'_>, server: String) -> Answer<()> {
    desk.desk().restart_server(server).await
}

#[tauri::command]
pub(crate) async fn sign_in_server(app: AppHandle, desk: Desk<'_>, server: String) -> Answer<()> {
    let page = desk.desk().sign_in_server(server).await?;
    dialogs::open_in_browser(&app, &page)
}

#[tauri::command]
pub(crate) async fn read_server(desk: Desk<'_>, server: String) -> Answer<ServerDetail> {
    desk.desk().read_server(&server)
}

#[tauri::command]
pub(crate) async fn read_server_output(desk: Desk<'_>, server: String) -> Answer<ServerOutput> {
    desk.desk().read_server_output(&server)
}

#[tauri::command]
pub(crate) async fn watch_server_output(desk: Desk<'_>, server: String, on: bool) -> Answer<()> {
    desk.desk().watch_server_output(&server, on);
    Ok(())
}

#[tauri::command]
pub(crate) async fn read_tool(desk: Desk<'_>, server: String, tool: String) -> Answer<ToolDetail> {
    desk.desk().read_tool(&server, &tool)
}

#[tauri::command]
pub(crate) async fn set_server_secret(
    desk: Desk<'_>,
    server: String,
    name: String,
    value: String,
) -> Answer<()> {
    desk.desk().set_server_secret(server, name, value).await
}

#[tauri::command]
pub(crate) async fn parse_servers(desk: Desk<'_>, text: String) -> Answer<ParsedServers> {
    desk.desk().parse_servers(&text)
}

#[tauri::command]
pub(crate) async fn add_server(desk: Desk<'_>, server: NewServer) -> Answer<()> {
    desk.desk().add_server(server).await
}

#[tauri::command]
pub(crate) async fn remove_server(desk: Desk<'_>, server: String) -> Answer<()> {
    desk.desk().remove_server(server).await
}

#[tauri::command]
pub(crate) async fn read_clients(desk: Desk<'_>) -> Answer<Vec<Client>> {
    desk.desk().read_clients().await
}

#[tauri::command]
pub(crate) async fn plan_client(
    desk: Desk<'_>,
    client: String,
    action: ClientAction,
    file: Option<String>,
    drop_mark: bool,
) -> Answer<ClientPlan> {
    desk.desk()
        .plan_client(client, action, file, drop_mark)
        .await
}

#[tauri::command]
pub(crate) async fn change_client(
    desk: Desk<'_>,
    client: String,
    action: ClientAction,
    file: Option<String>,
    drop_mark: bool,
    keep: bool,
    seen: String,
) -> Answer<Client> {
    desk.desk()
        .change_client(client, action, file, drop_mark, keep, seen)
        .await
}

#[tauri::command]
pub(crate) async fn keep_client(desk: Desk<'_>, client: String, keep: bool) -> Answer<()> {
    desk.desk().keep_client(client, keep).await
}

#[tauri::command]
pub(crate) async fn prefer_client(desk: Desk<'_>, client: String, preferred: bool) -> Answer<()> {
    desk.desk().prefer_client(client, preferred).await
}

#[tauri::command]
pub(crate) async fn show_client_file(
    app: AppHandle,
    desk: Desk<'_>,
    client: String,
    file: Option<String>,
) -> Answer<()> {
    let file = desk.desk().client_file(client, file).await?;
    dialogs::show_in_folder(&app, &file)
}

#[tauri::command]
pub(crate) async fn set_backend(desk: Desk<'_>, backend: Backend) -> Answer<()> {
    desk.desk().set_backend(backend).await
}

#[tauri::command]
pub(crate) async fn set_engine(desk: Desk<'_>, engine: EngineChoice) -> Answer<()> {
    desk.desk().set_engine(engine).await
}

#[tauri::command]
pub(crate) async fn set_image(desk: Desk<'_>, image: String) -> Answer<()> {
    desk.desk().set_image(image).await
}

#[tauri::command]
pub(crate) async fn set_packages_policy(desk: Desk<'_>, policy: PackagesPolicy) -> Answer<()> {
    desk.desk().set_packages_policy(policy).await
}

#[tauri::command]
pub(crate) async fn remove_package(desk: Desk<'_>, name: String) -> Answer<()> {
    desk.desk().remove_package(name).await
}

#[tauri::command]
pub(crate) async fn pull_image(desk: Desk<'_>) -> Answer<()> {
    desk.desk().pull_image();
    Ok(())
}

#[tauri::command]
pub(crate) async fn check_sandbox(desk: Desk<'_>) -> Answer<()> {
    desk.desk().check_sandbox().await
}

#[tauri::command]
pub(crate) async fn set_limit(desk: Desk<'_>, name: String, value: u64) -> Answer<Limit> {
    desk.desk().set_limit(name, value).await
}

#[tauri::command]
pub(crate) async fn reset_limit(desk: Desk<'_>, name: String) -> Answer<Limit> {
    desk.desk().reset_limit(name).await
}

#[tauri::command]
pub(crate) async fn run_code(desk: Desk<'_>, code: String) -> Answer<String> {
    desk.desk().run_code(code)
}

#[tauri::command]
pub(crate) async fn stop_interpreter(desk: Desk<'_>, id: String) -> Answer<()> {
    desk.desk().stop_interpreter(id).await
}

#[tauri::command]
pub(crate) async fn watch_interpreters(desk: Desk<'_>, on: bool) -> Answer<()> {
    desk.desk().watch_interpreters(on);
    Ok(())
}

#[tauri::command]
pub(crate) async fn read_memory(
    desk: Desk<'_>,
    text: String,
    order: MemoryOrder,
    offset: u64,
    limit: u32,
) -> Answer<MemoryPage> {
    desk.desk().read_memory(text, order, offset, limit).await
}

#[tauri::command]
pub(crate) async fn read_memory_item(desk: Desk<'_>, key: String) -> Answer<MemoryItem> {
    desk.desk().read_memory_item(key).await
}

#[tauri::command]
pub(crate) async fn save_memory_item(
    desk: Desk<'_>,
    key: String,
    value: String,
    expected_version: Option<u64>,
) -> Answer<MemoryInfo> {
    desk.desk()
        .save_memory_item(key, value, expected_version)
        .await
}

#[tauri::command]
pub(crate) async fn forget_memory_item(desk: Desk<'_>, key: String) -> Answer<Forgotten> {
    desk.desk().forget_memory_item(key).await
}

#[tauri::command]
pub(crate) async fn read_saved_tools(desk: Desk<'_>) -> Answer<Vec<SavedTool>> {
    desk.desk().read_saved_tools().await
}

#[tauri::command]
pub(crate) async fn forget_saved_tool(desk: Desk<'_>, name: String) -> Answer<Forgotten> {
    desk.desk().forget_saved_tool(name).await
}

#[tauri::command]
pub(crate) async fn undo_forget(desk: Desk<'_>, undo_id: String) -> Answer<()> {
    desk.desk().undo_forget(undo_id).await
}

#[tauri::command]
pub(crate) async fn export_memory(app: AppHandle, desk: Desk<'_>) -> Answer<Option<String>> {
    match dialogs::save_as(&app, "runbridge-memory.json", "JSON", "json").await {
        Some(path) => desk.desk().export_memory(&path).await.map(Some),
        None => Ok(None),
    }
}

#[tauri::command]
pub(crate) async fn import_memory(
    app: AppHandle,
    desk: Desk<'_>,
    mode: ImportMode,
) -> Answer<Option<ImportReport>> {
    match dialogs::open(&app, "JSON", "json").await {
        Some(path) => desk.desk().import_memory(&path, mode).await.map(Some),
        None => Ok(None),
    }
}

#[tauri::command]
pub(crate) async fn read_runs(
    desk: Desk<'_>,
    filter: RunFilter,
    after: Option<RunCursor>,
    limit: u32,
) -> Answer<RunPage> {
    desk.desk().read_runs(filter, after, limit).await
}

#[tauri::command]
pub(crate) async fn read_run(desk: Desk<'_>, id: String) -> Answer<RunDetail> {
    desk.desk().read_run(id).await
}

#[tauri::command]
pub(crate) async fn stop_run(desk: Desk<'_>, id: String) -> Answer<()> {
    desk.desk().stop_run(&id)
}

#[tauri::command]
pub(crate) async fn answer_question(
    app: AppHandle,
    desk: Desk<'_>,
    id: String,
    answer: QuestionAnswer,
) -> Answer<()> {
    let open = |page: &str| dialogs::open_in_browser(&app, page);
    desk.desk().answer_question(&id, answer, open)
}

#[tauri::command]
pub(crate) async fn export_runs(
    app: AppHandle,
    desk: Desk<'_>,
    filter: RunFilter,
) -> Answer<Option<String>> {
    match dialogs::save_as(&app, "runbridge-runs.json", "JSON", "json").await {
        Some(path) => desk.desk().export_runs(filter, &path).await.map(Some),
        None => Ok(None),
    }
}

#[tauri::command]
pub(crate) async fn clear_runs(desk: Desk<'_>) -> Answer<()> {
    desk.desk().clear_runs().await
}

#[tauri::command]
pub(crate) async fn change_settings(desk: Desk<'_>, patch: SettingsPatch) -> Answer<()> {
    desk.desk().change_settings(patch).await
}

#[tauri::command]
pub(crate) async fn check_for_update(app: AppHandle, desk: Desk<'_>) -> Answer<()> {
    updates::check(&app, desk.desk()).await;
    Ok(())
}

#[tauri::command]
pub(crate) async fn install_update(app: AppHandle, desk: Desk<'_>) -> Answer<()> {
    updates::install(&app, desk.desk()).await;
    Ok(())
}

#[tauri::command]
pub(crate) fn restart_app(app: AppHandle) {
    app.request_restart();
}

#[tauri::command]
pub(crate) async fn open_place(app: AppHandle, desk: Desk<'_>, place: Place) -> Answer<()> {
    dialogs::show_in_folder(&app, &desk.desk().open_place(place))
}

#[tauri::command]
pub(crate) async fn read_diagnostics(desk: Desk<'_>) -> Answer<Vec<DiagnosticsFile>> {
    desk.desk().read_diagnostics().await
}

#[tauri::command]
pub(crate) async fn save_diagnostics(app: AppHandle, desk: Desk<'_>) -> Answer<Option<String>> {
    match dialogs::save_as(&app, "runbridge-diagnostics.txt", "Text", "txt").await {
        Some(path) => desk.desk().save_diagnostics(&path).await.map(Some),
        None => Ok(None),
    }
}

#[tauri::command]
pub(crate) async fn read_licences(desk: Desk<'_>) -> Answer<Vec<Licence>> {
    desk.desk().read_licences().await
}
