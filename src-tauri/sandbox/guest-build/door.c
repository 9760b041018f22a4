/* The embedded Python's way to the host: the built-in module `_door`, and the functions that the
 * host calls. Knows bytes, ids and time; what a frame means is Python's and the host's business.
 *
 * The interpreter runs in turns. The host calls `turn` when there may be something to do; it
 * returns when Python has nothing left to do, with the milliseconds until it wants the next turn.
 * Between two turns the C stack is empty, so that a copy of linear memory is the whole interpreter.
 */
#define Py_BUILD_CORE 1
#include "Python.h"
#include "internal/pycore_ceval.h"
#include "internal/pycore_object.h"
#include "internal/pycore_pystate.h"
#include "internal/pycore_runtime.h"
#include "internal/pycore_unicodeobject.h"
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#define IMPORT(name) __attribute__((import_module("door"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

struct header {
    uint32_t kind;
    uint32_t length;
    uint64_t id;
};

/* Wait for a frame; negative seconds wait for ever. 1: `header` tells of one, which stays the next
 * until it is taken. 0: none came, or an interrupt did. */
IMPORT("receive") int32_t door_receive(double seconds, struct header *header);
/* Copy the payload of the frame that `receive` told of. `length` is its length. */
IMPORT("take") void door_take(char *payload, uint32_t length);
/* Send one whole frame. */
IMPORT("send") void door_send(uint32_t kind, uint64_t id, const char *payload, uint32_t length);

/* The interrupt that the host marked has reached user code: it need not be marked again. */
IMPORT("heeded") void door_heeded(void);

static PyObject *turn_function;

static PyObject *
receive(PyObject *module, PyObject *argument)
{
    double seconds = -1.0;
    if (argument != Py_None) {
        seconds = PyFloat_AsDouble(argument);
        if (seconds == -1.0 && PyErr_Occurred()) {
            return NULL;
        }
        if (!(seconds > 0.0)) {
            seconds = 0.0;
        }
    }
    struct header header;
    int32_t found = door_receive(seconds, &header);
    if (PyErr_CheckSignals() < 0) {
        return NULL;
    }
    if (!found) {
        Py_RETURN_NONE;
    }
    PyObject *payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)header.length);
    if (payload == NULL) {
        /* Too little memory for it: take it away, so that the frames behind it can be had. */
        door_take(NULL, 0);
        PyErr_Clear();
        return Py_BuildValue("iKO", (int)header.kind, (unsigned long long)header.id, Py_None);
    }
    door_take(PyBytes_AS_STRING(payload), header.length);
    return Py_BuildValue("iKN", (int)header.kind, (unsigned long long)header.id, payload);
}

static PyObject *
send(PyObject *module, PyObject *arguments)
{
    int kind;
    unsigned long long id;
    Py_buffer payload;
    if (!PyArg_ParseTuple(arguments, "iKy*:send", &kind, &id, &payload)) {
        return NULL;
    }
    door_send((uint32_t)kind, id, payload.buf, (uint32_t)payload.len);
    PyBuffer_Release(&payload);
    Py_RETURN_NONE;
}

static PyObject *
heeded(PyObject *module, PyObject *unused)
{
    door_heeded();
    Py_RETURN_NONE;
}

static PyObject *
on_turn(PyObject *module, PyObject *function)
{
    if (turn_function != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the turns are taken");
        return NULL;
    }
    turn_function = Py_NewRef(function);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"receive", receive, METH_O,
     "receive(seconds, /)\n--\n\n"
     "The next frame as (kind, id, payload); None if none came in time. The payload is None if "
     "memory was too short for it."},
    {"send", send, METH_VARARGS, "send(kind, id, payload, /)\n--\n\nSend one frame."},
    {"heeded", heeded, METH_NOARGS,
     "heeded()\n--\n\nTell the host that its interrupt has arrived."},
    {"on_turn", on_turn, METH_O,
     "on_turn(function, /)\n--\n\n"
     "Have the host call `function` for each turn; it gives the seconds until the next one, or "
     "None. Can be done once."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_door", .m_size = -1, .m_methods = methods,
};

static PyObject *
init_module(void)
{
    return PyModule_Create(&module_definition);
}

static _Noreturn void
give_up(const char *what)
{
    fprintf(stderr, "python: %s\n", what);
    if (PyErr_Occurred()) {
        PyErr_Print();
    }
    abort();
}

static void
append(PyConfig *config, const wchar_t *path)
{
    if (PyStatus_Exception(PyWideStringList_Append(&config->module_search_paths, path))) {
        give_up("cannot set the module search path");
    }
}

static int make_part_immortal(PyObject *object, void *unused);

/* Count no references to an object any more, nor to those of its parts that the collector does not
 * know and so does not tell of. */
static int
make_immortal(PyObject *object, void *unused)
{
    if (_Py_IsImmortal(object)) {
        return 1;
    }
    if (PyUnicode_CheckExact(object) && PyUnicode_CHECK_INTERNED(object)) {
        /* Such a string says itself how long it lives. */
        _PyUnicode_InternImmortal(PyInterpreterState_Get(), &object);
        return 1;
    }
    _Py_SetImmortalUntracked(object);
    if (PyDict_Check(object)) {
        /* Its own account of what it holds leaves out keys that are strings. */
        Py_ssize_t place = 0;
        PyObject *key, *value;
        while (PyDict_Next(object, &place, &key, &value)) {
            make_part_immortal(key, NULL);
        }
    }
    else if (PyCode_Check(object)) {
        PyCodeObject *code = (PyCodeObject *)object;
        PyObject *parts[] = {
            code->co_consts, code->co_names, code->co_exceptiontable, code->co_localsplusnames,
            code->co_localspluskinds, code->co_filename, code->co_name, code->co_qualname,
            code->co_linetable,
        };
        for (size_t i = 0; i < Py_ARRAY_LENGTH(parts); i++) {
            make_part_immortal(parts[i], NULL);
        }
    }
    traverseproc traverse = Py_TYPE(object)->tp_traverse;
    if (PyObject_IS_GC(object) && traverse != NULL) {
        traverse(object, make_part_immortal, NULL);
    }
    return 1;
}

static int
make_part_immortal(PyObject *object, void *unused)
{
    /* Those that the collector knows have their own turn: else all that is there would be gone through
     * as one chain of calls. */
    if (!PyObject_GC_IsTracked(object)) {
        make_immortal(object, NULL);
    }
    return 0;
}

/* Start Python and import the guest. All that is in memory at the end of it is the snapshot. */
EXPORT("wizer-initialize") void
initialize(void)
{
    if (PyImport_AppendInittab("_door", init_module) < 0) {
        give_up("cannot add the module _door");
    }
    PyPreConfig preconfig;
    PyPreConfig_InitIsolatedConfig(&preconfig);
    preconfig.utf8_mode = 1;
    if (PyStatus_Exception(Py_PreInitialize(&preconfig))) {
        give_up("cannot pre-initialize");
    }
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.install_signal_handlers = 1;
    config.site_import = 0;
    config.write_bytecode = 0;
    config.buffered_stdio = 0;
    /* Hashes are inside the snapshot's dictionaries: they cannot differ from start to start. */
    config.use_hash_seed = 1;
    config.hash_seed = 0;
    config.module_search_paths_set = 1;
    append(&config, L"/lib/python.zip");
    append(&config, L"/lib/packages.zip");
    PyConfig_SetString(&config, &config.prefix, L"/usr");
    PyConfig_SetString(&config, &config.exec_prefix, L"/usr");
    PyConfig_SetString(&config, &config.executable, L"/usr/bin/python3");
    PyConfig_SetString(&config, &config.program_name, L"python3");
    PyStatus status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) {
        give_up(status.err_msg ? status.err_msg : "cannot initialize");
    }
    /* The guest's own code is there only now: nothing of it is a file later. */
    FILE *start = fopen("/guest/start.py", "rb");
    if (start == NULL) {
        give_up("/guest/start.py is missing");
    }
    if (PyRun_SimpleFileEx(start, "<guest start>", 1) != 0 || turn_function == NULL) {
        give_up("the guest did not start");
    }
    /* What every guest begins with is there for good. To count references to it would write to its
     * pages, and each guest would have a copy of most of them. */
    PyUnstable_GC_VisitObjects(make_immortal, NULL);
}

/* Milliseconds until Python wants the next turn; -1: it waits for a frame; -2: the guest's own code
 * failed and said why on stderr. */
EXPORT("turn") int32_t
turn(void)
{
    PyObject *wanted = PyObject_CallNoArgs(turn_function);
    if (wanted == NULL) {
        PyErr_Print();
        PyErr_Clear();
        return -2;
    }
    if (wanted == Py_None) {
        Py_DECREF(wanted);
        return -1;
    }
    double seconds = PyFloat_AsDouble(wanted);
    Py_DECREF(wanted);
    if (seconds == -1.0 && PyErr_Occurred()) {
        PyErr_Print();
        PyErr_Clear();
        return -2;
    }
    if (!(seconds > 0.0)) {
        return 0;
    }
    return seconds > 3600.0 ? 3600000 : (int32_t)(seconds * 1000.0) + 1;
}

/* Where CPython keeps what its signal handler would set. The host writes there while no guest code
 * runs; calling a function for it instead would tread on the red zone of the one interrupted. */
static struct {
    uint32_t tripped, any_tripped, eval_breaker, pending_bit;
} mailbox;

EXPORT("mailbox") void *
interrupt_mailbox(void)
{
    mailbox.tripped = (uint32_t)(uintptr_t)&_PyRuntime.signals.handlers[SIGINT].tripped;
    mailbox.any_tripped = (uint32_t)(uintptr_t)&_PyRuntime.signals.is_tripped;
    mailbox.eval_breaker = (uint32_t)(uintptr_t)&_PyThreadState_GET()->eval_breaker;
    mailbox.pending_bit = _PY_SIGNALS_PENDING_BIT;
    return &mailbox;
}
