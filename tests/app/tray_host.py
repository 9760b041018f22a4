"""A panel without a screen: takes status icons as a desktop does, and answers what is asked on stdin.

Each line of stdin is a JSON object with `ask`; each line of stdout is the answer. `icon` waits for an
icon to register; `menu` gives the tree of its menu; `click` clicks a line of it by identifier.
`notifications` gives what was to be shown to the user.
"""

import json
import sys
import threading

from gi.repository import Gio, GLib

WATCHER = """<node><interface name="org.kde.StatusNotifierWatcher">
<method name="RegisterStatusNotifierItem"><arg type="s" direction="in"/></method>
<method name="RegisterStatusNotifierHost"><arg type="s" direction="in"/></method>
<property name="RegisteredStatusNotifierItems" type="as" access="read"/>
<property name="IsStatusNotifierHostRegistered" type="b" access="read"/>
<property name="ProtocolVersion" type="i" access="read"/>
<signal name="StatusNotifierItemRegistered"><arg type="s"/></signal>
<signal name="StatusNotifierHostRegistered"/>
</interface></node>"""

NOTIFICATIONS = """<node><interface name="org.freedesktop.Notifications">
<method name="Notify">
<arg type="s" direction="in"/><arg type="u" direction="in"/><arg type="s" direction="in"/>
<arg type="s" direction="in"/><arg type="s" direction="in"/><arg type="as" direction="in"/>
<arg type="a{sv}" direction="in"/><arg type="i" direction="in"/><arg type="u" direction="out"/>
</method>
<method name="GetCapabilities"><arg type="as" direction="out"/></method>
<method name="GetServerInformation">
<arg type="s" direction="out"/><arg type="s" direction="out"/>
<arg type="s" direction="out"/><arg type="s" direction="out"/>
</method>
<method name="CloseNotification"><arg type="u" direction="in"/></method>
<signal name="ActionInvoked"><arg type="u"/><arg type="s"/></signal>
<signal name="NotificationClosed"><arg type="u"/><arg type="u"/></signal>
</interface></node>"""

WAIT_S = 60

items = []
shown = []
arrived = threading.Event()


def watch(connection, sender, path, interface, method, parameters, invocation):
    if method == "RegisterStatusNotifierItem":
        given = parameters.unpack()[0]
        # An icon names either its path or its own bus name.
        items.append((sender, given if given.startswith("/") else "/StatusNotifierItem"))
        arrived.set()
    invocation.return_value(None)


def watched(connection, sender, path, interface, name):
    return {
        "RegisteredStatusNotifierItems": GLib.Variant("as", [bus + at for bus, at in items]),
        "IsStatusNotifierHostRegistered": GLib.Variant("b", True),
        "ProtocolVersion": GLib.Variant("i", 0),
    }[name]


def notify(connection, sender, path, interface, method, parameters, invocation):
    if method == "Notify":
        _, _, _, title, body, _, _, _ = parameters.unpack()
        shown.append({"title": title, "body": body})
        invocation.return_value(GLib.Variant("(u)", (len(shown),)))
    elif method == "GetCapabilities":
        invocation.return_value(GLib.Variant("(as)", (["body", "actions"],)))
    elif method == "GetServerInformation":
        invocation.return_value(GLib.Variant("(ssss)", ("tests", "tests", "1", "1.2")))
    else:
        invocation.return_value(None)


def own(name, path, xml, handler, getter=None):
    interface = Gio.DBusNodeInfo.new_for_xml(xml).interfaces[0]
    Gio.bus_own_name_on_connection(bus, name, Gio.BusNameOwnerFlags.NONE, None, None)
    bus.register_object(path, interface, handler, getter, None)


def call(name, path, interface, method, parameters):
    return bus.call_sync(name, path, interface, method, parameters, None, 0, WAIT_S * 1000, None).unpack()


def newest():
    if not arrived.wait(WAIT_S):
        raise TimeoutError("no icon has registered")
    return items[-1]


def item_property(name):
    owner, path = newest()
    arguments = GLib.Variant("(ss)", ("org.kde.StatusNotifierItem", name))
    return call(owner, path, "org.freedesktop.DBus.Properties", "Get", arguments)[0]


def line(layout):
    number, properties, children = layout
    return {
        "id": number,
        "label": properties.get("label", "").replace("__", "\0").replace("_", "").replace("\0", "_"),
        "enabled": properties.get("enabled", True),
        "checked": properties.get("toggle-state") == 1 if "toggle-type" in properties else None,
        "separator": properties.get("type") == "separator",
        "items": [line(child) for child in children],
    }


def menu():
    arguments = GLib.Variant("(iias)", (0, -1, []))
    owner, path = newest()[0], item_property("Menu")
    return line(call(owner, path, "com.canonical.dbusmenu", "GetLayout", arguments)[1])


def click(number):
    arguments = GLib.Variant("(isvu)", (number, "clicked", GLib.Variant("i", 0), 0))
    call(newest()[0], item_property("Menu"), "com.canonical.dbusmenu", "Event", arguments)


def answer(question):
    ask = question["ask"]
    if ask == "icon":
        return item_property("IconName")
    if ask == "menu":
        return menu()
    if ask == "click":
        return click(question["id"])
    if ask == "notifications":
        return shown
    raise ValueError(ask)


def answer_all():
    for text in sys.stdin:
        try:
            reply = {"answer": answer(json.loads(text))}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)
    loop.quit()


bus = Gio.bus_get_sync(Gio.BusType.SESSION, None)
own("org.kde.StatusNotifierWatcher", "/StatusNotifierWatcher", WATCHER, watch, watched)
own("org.freedesktop.Notifications", "/org/freedesktop/Notifications", NOTIFICATIONS, notify)
loop = GLib.MainLoop()
threading.Thread(target=answer_all, daemon=True).start()
print(json.dumps({"answer": "ready"}), flush=True)
loop.run()
