import * as Schema from "effect/Schema"
import { finalizerCapabilities } from "../manifest.js"
import { quoteIdentifier, quoteLiteral } from "../renderSql.js"
import type { Code } from "./codes.js"
import type { Found } from "./finding.js"
import { type Binding, transaction } from "./subject.js"

interface Rule {
  readonly setting: string
  readonly code: Code
  readonly isBad: (value: string) => boolean
  readonly good: string
  /** Whom it concerns; everybody who is bound, unless said otherwise. */
  readonly capability?: string
}

const isOff = (value: string): boolean => /^(off|false|no|0|f|n)$/i.test(value)
const isOn = (value: string): boolean => /^(on|true|yes|1|t|y)$/i.test(value)
const isLimit = (value: string): boolean => !/^0\s*\w*$/.test(value)

const rules: ReadonlyArray<Rule> = [
  { setting: "default_transaction_read_only", code: "setting-read-only", isBad: isOn, good: "off" },
  {
    setting: "default_transaction_isolation",
    code: "setting-isolation",
    isBad: (value) => value !== "read committed",
    good: "read committed"
  },
  { setting: "synchronous_commit", code: "setting-synchronous-commit", isBad: isOff, good: "on" },
  {
    setting: "TimeZone",
    code: "setting-time-zone",
    isBad: (value) => !/^(etc\/)?(utc|uct|gmt|zulu|universal|greenwich)$/i.test(value),
    good: "UTC"
  },
  { setting: "DateStyle", code: "setting-date-style", isBad: (value) => !/^iso\b/i.test(value), good: "ISO" },
  { setting: "row_security", code: "setting-row-security", isBad: isOff, good: "on" },
  { setting: "standard_conforming_strings", code: "setting-strings", isBad: isOff, good: "on" },
  {
    setting: "idle_session_timeout",
    code: "setting-idle-session",
    isBad: isLimit,
    good: "0",
    capability: "executor"
  },
  {
    setting: "transaction_timeout",
    code: "setting-transaction-timeout",
    isBad: isLimit,
    good: "0",
    capability: "executor"
  }
]

/** The limits of a finalizer's role, and what `roles apply` would set. */
const limits = { statement_timeout: "30s", idle_in_transaction_session_timeout: "30s", lock_timeout: "10s" } as const

const watched = [...rules.map(({ setting }) => setting), ...Object.keys(limits)]

const asArray = `'{${watched.map((name) => name.toLowerCase()).join()}}'::text[]`

/** @internal Before anything is set by doctor itself. What a role or the database sets hides what the server says. */
export const settingsSql = `select current_database()::text as database, current_user::text as me, pg_is_in_recovery() as standby,
  coalesce((select jsonb_agg(jsonb_build_object('role', r.rolname, 'here', s.setdatabase <> 0, 'all', s.setrole = 0,
      'name', lower(split_part(c, '=', 1)), 'value', substr(c, strpos(c, '=') + 1)))
    from pg_db_role_setting s left join pg_roles r on r.oid = s.setrole cross join unnest(s.setconfig) c
    where s.setdatabase in (0, d.oid) and lower(split_part(c, '=', 1)) = any (${asArray})), '[]') as stored,
  coalesce((select jsonb_agg(jsonb_build_object('name', lower(p.name), 'value', p.setting, 'source', p.source))
    from pg_settings p where lower(p.name) = any (${asArray})), '[]') as session
from pg_database d where d.datname = current_database()`

/** @internal */
export const SettingsRow = Schema.Tuple(
  Schema.Struct({
    database: Schema.String,
    me: Schema.String,
    standby: Schema.Boolean,
    stored: Schema.Array(
      Schema.Struct({
        role: Schema.NullOr(Schema.String),
        here: Schema.Boolean,
        all: Schema.Boolean,
        name: Schema.String,
        value: Schema.String
      })
    ),
    session: Schema.Array(Schema.Struct({ name: Schema.String, value: Schema.String, source: Schema.String }))
  })
)

/** @internal */
export type Settings = (typeof SettingsRow.Type)[0]

interface Effective {
  readonly value: string
  /** Where it is said. */
  readonly level: string
  /** What takes it back there; undefined where no SQL can. */
  readonly sql: string | undefined
}

const ofServer = ["default", "configuration file", "command line", "environment variable", "override", "global"]

/** What a session of the role begins with, and where that is said: the nearest goes first. */
const effective = (settings: Settings, role: string, setting: string, good: string): Effective | undefined => {
  const name = setting.toLowerCase()
  const [ofDatabase, ofRole] = [`database ${quoteIdentifier(settings.database)}`, `role ${quoteIdentifier(role)}`]
  const at = (own: boolean, here: boolean) =>
    settings.stored.find((one) => one.name === name && one.here === here && (own ? one.role === role : one.all))
  const levels = [
    { at: at(true, true), level: `role ${role} in this database`, target: `${ofRole} in ${ofDatabase}` },
    { at: at(true, false), level: `role ${role}`, target: ofRole },
    { at: at(false, true), level: "this database", target: ofDatabase },
    { at: at(false, false), level: "all roles", target: "role all" }
  ]
  for (const { at, level, target } of levels) {
    if (at !== undefined) return { value: at.value, level, sql: `alter ${target} reset ${setting}` }
  }
  const server = settings.session.find((one) => one.name === name)
  return server === undefined || !ofServer.includes(server.source)
    ? undefined
    : { value: server.value, level: "the server", sql: `alter ${ofDatabase} set ${setting} = ${quoteLiteral(good)}` }
}

const bound = (bindings: ReadonlyArray<Binding>, capability: string | undefined): ReadonlyArray<string> => [
  ...new Set(
    bindings.filter((one) => capability === undefined || one.capability === capability).map(({ role }) => role)
  )
]

/** One finding for each place where a setting is said, with the roles that it concerns. */
const ofRule = (rule: Rule, settings: Settings, roles: ReadonlyArray<string>): ReadonlyArray<Found> => {
  const places = new Map<string, { readonly effective: Effective; readonly roles: Array<string> }>()
  for (const role of roles) {
    const found = effective(settings, role, rule.setting, rule.good)
    if (found === undefined || !rule.isBad(found.value)) continue
    const place = places.get(found.level) ?? { effective: found, roles: [] }
    place.roles.push(role)
    places.set(found.level, place)
  }
  return [...places.values()].map(({ effective: { level, sql, value }, roles: concerned }): Found => ({
    code: rule.code,
    object: rule.setting,
    found: `${rule.setting} = ${value}, set for ${level}; it concerns ${concerned.join(", ")}`,
    expected: `${rule.setting} = ${rule.good}`,
    sql: sql === undefined ? undefined : transaction(sql)
  }))
}

/** What the url itself asks for, which nobody but its owner changes. */
const ofSession = (rule: Rule, settings: Settings): ReadonlyArray<Found> => {
  const here = settings.session.find(({ name }) => name === rule.setting.toLowerCase())
  return here?.source === "client" && rule.isBad(here.value)
    ? [
        {
          code: rule.code,
          object: rule.setting,
          found: `${rule.setting} = ${here.value}, asked for by this connection's own url or environment`,
          expected: `${rule.setting} = ${rule.good}`,
          advice: "take it out of the url, or of PGOPTIONS"
        }
      ]
    : []
}

/** @internal Without bindings, of the role that asks. */
export const checkSettings = (settings: Settings, given: ReadonlyArray<Binding> | undefined): ReadonlyArray<Found> => {
  const bindings = given === undefined || given.length === 0 ? [{ capability: "executor", role: settings.me }] : given
  const finalizers = new Set(finalizerCapabilities.flatMap((capability) => bound(bindings, capability)))
  const unlimited = Array.from(finalizers).flatMap((role): ReadonlyArray<Found> => {
    const missing = Object.entries(limits).filter(
      ([setting]) => !isLimit(effective(settings, role, setting, "")?.value ?? "0")
    )
    return missing.length === 0
      ? []
      : [
          {
            code: "finalizer-timeouts",
            object: role,
            found: `${role} has no ${missing.map(([setting]) => setting).join(", no ")}`,
            expected: missing.map(([setting, value]) => `${setting} = ${value}`).join(", "),
            sql: transaction(
              ...missing.map(
                ([setting, value]) => `alter role ${quoteIdentifier(role)} set ${setting} = ${quoteLiteral(value)}`
              )
            )
          }
        ]
  })
  return [
    ...(settings.standby
      ? [
          {
            code: "server-standby",
            object: "the server",
            found: "a standby, in recovery",
            expected: "the primary",
            advice: "give the primary's url; or promote this one, when the primary is gone for good"
          } as const
        ]
      : []),
    ...unlimited,
    ...rules.flatMap((rule) => [
      ...ofRule(rule, settings, bound(bindings, rule.capability)),
      ...ofSession(rule, settings)
    ])
  ]
}
