import { createConnection, createServer } from "node:net"
import type { Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect, FastCheck as fc } from "effect"
import * as FaultProxy from "../../layers/testing/FaultProxy.js"
import type { Execution } from "../../layers/testing/internal/conversation.js"
import { answered, answers, Conversation } from "../../layers/testing/internal/conversation.js"
import type { Frame } from "../../layers/testing/internal/frames.js"
import { FrameSplitter, joined } from "../../layers/testing/internal/frames.js"
import { addressOf, readdressed } from "../../layers/testing/internal/listen.js"
import { Opening, sqlState } from "../../layers/testing/internal/messages.js"

const message = (type: string, body: Buffer | string = ""): Buffer => {
  const bytes = Buffer.from(body)
  const header = Buffer.alloc(4)
  header.writeUInt32BE(bytes.length + 4)
  return Buffer.concat([Buffer.from(type, "latin1"), header, bytes])
}

const opening = (code: number, rest = ""): Buffer => {
  const word = Buffer.alloc(4)
  word.writeUInt32BE(code)
  return message("", Buffer.concat([word, Buffer.from(rest)]))
}

const startup = opening(196608, "user\0postgres\0application_name\0test\0\0")

const capture = (type: number): number => (type === 0x51 ? 8 : type === 0x50 ? 1_000 : 0)

/** What a splitter makes of the chunks: its frames without the part that depends on the chunks, and all raw bytes. */
const read = (chunks: ReadonlyArray<Buffer>, options: { readonly startup: boolean }) => {
  const splitter = new FrameSplitter({ ...options, capture })
  const frames: Array<readonly [type: number, length: number, body: string]> = []
  const raw: Array<Buffer> = []
  for (const chunk of chunks) {
    for (const piece of splitter.push(chunk)) {
      if (piece._tag === "Malformed") return { frames, malformed: true }
      raw.push(piece.raw)
      if (piece._tag === "Frame") frames.push([piece.type, piece.length, piece.body.toString("hex")])
    }
  }
  return { frames, raw: Buffer.concat(raw).toString("hex"), malformed: false }
}

const chunked = (bytes: Buffer, sizes: ReadonlyArray<number>): ReadonlyArray<Buffer> => {
  const chunks: Array<Buffer> = []
  let offset = 0
  for (let i = 0; offset < bytes.length; i++) {
    const size = sizes[i % sizes.length] ?? 1
    chunks.push(Buffer.from(bytes.subarray(offset, offset + size)))
    offset += size
  }
  return chunks
}

const typed = fc
  .tuple(fc.constantFrom("Q", "P", "B", "E", "S", "d", "Z"), fc.uint8Array({ maxLength: 40 }))
  .map(([type, body]) => message(type, Buffer.from(body)))
const sizes = fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 20 })

describe("FrameSplitter", () => {
  it("gives the same messages for every chunking of a stream", () => {
    fc.assert(
      fc.property(fc.array(typed, { maxLength: 20 }), sizes, fc.boolean(), (messages, sizes, client) => {
        const bytes = Buffer.concat(client ? [opening(Opening.sslRequest), startup, ...messages] : messages)
        const whole = read([bytes], { startup: client })
        assert.deepStrictEqual(read(chunked(bytes, sizes), { startup: client }), whole)
        assert.strictEqual(whole.raw, bytes.toString("hex"))
        assert.strictEqual(whole.frames.length, messages.length + (client ? 2 : 0))
      })
    )
  })

  it("passes on what is complete, and captures no more than it was told", () => {
    const splitter = new FrameSplitter({ startup: false, capture })
    const [first, ...rest] = splitter.push(message("Q", "select 1 and much more"))
    assert.deepInclude(first, { type: 0x51, length: 22, body: Buffer.from("select 1") })
    assert.deepStrictEqual(rest, [])
    assert.deepStrictEqual(splitter.push(message("P", "abc").subarray(0, 7)), [])
  })

  it("calls what is not protocol 3 malformed, and a cancel request opaque", () => {
    const client = { startup: true }
    assert.isTrue(read([Buffer.from("GET / HTTP/1.1\r\n\r\n")], client).malformed)
    assert.isTrue(read([Buffer.from("16030100c8010000c4", "hex")], client).malformed)
    assert.isTrue(read([opening(131072)], client).malformed)
    assert.isTrue(read([Buffer.from("5a00000003", "hex")], { startup: false }).malformed)
    assert.isFalse(read([opening(Opening.cancelRequest, "12345678"), Buffer.from("anything")], client).malformed)
  })

  it("joins only neighbours", () => {
    const bytes = Buffer.from("abcdef")
    assert.strictEqual(joined(bytes.subarray(0, 2), bytes.subarray(2, 5))?.toString(), "abcde")
    assert.isUndefined(joined(bytes.subarray(0, 2), bytes.subarray(3)))
    assert.isUndefined(joined(bytes.subarray(0, 2), Buffer.alloc(2)))
  })
})

/** Feeds a conversation; `server` says which of the messages are answers of the execution, and whether it is over. */
const talk = () => {
  const conversation = new Conversation()
  const frames = (bytes: Buffer, startup: boolean): ReadonlyArray<Frame> =>
    new FrameSplitter({ startup, capture: () => 1_000 }).push(bytes).filter((piece) => piece._tag === "Frame")
  const client = (...messages: ReadonlyArray<Buffer>): ReadonlyArray<Execution> =>
    frames(Buffer.concat(messages), false).flatMap((frame) => conversation.frontend(frame) ?? [])
  const server = (execution: Execution | undefined, ...messages: ReadonlyArray<Buffer>): string =>
    frames(Buffer.concat(messages), false)
      .map((frame) => {
        const mine = execution !== undefined && conversation.current === execution.exchange && answers(frame, execution)
        conversation.backend(frame)
        return (mine ? "+" : "-") + (execution !== undefined && answered(execution) ? "!" : "")
      })
      .join(" ")
  for (const frame of frames(startup, true)) conversation.frontend(frame)
  server(undefined, message("R"), message("K", Buffer.from([0, 0, 1, 0, 0, 0, 0, 0])), message("Z", "I"))
  return { conversation, client, server }
}

const run = (sql: string, name = "") => [
  message("P", `${name}\0${sql}\0\0\0`),
  message("B", `\0${name}\0`),
  message("E", "\0\0\0\0\0")
]

describe("Conversation", () => {
  it("learns who speaks to which backend", () => {
    const { conversation } = talk()
    assert.strictEqual(conversation.backendPid, 256)
    assert.strictEqual(conversation.parameters.get("application_name"), "test")
    assert.isUndefined(conversation.current)
  })

  it("pairs pipelined statements with their answers", () => {
    const { client, server } = talk()
    const [, second] = client(...run("one"), ...run("two"), message("S"), message("Q", "three\0"))
    assert.deepInclude(second, { sql: "two", position: 1, protocol: "extended" })
    const answer = ["1", "2", "D", "C", "1", "2", "D", "C", "Z", "C", "Z"].map((type) =>
      message(type, type === "Z" ? "I" : "")
    )
    assert.strictEqual(server(second, ...answer), "- - - - - - + + +! -! -!")
  })

  it("takes an error before the statement for its answer", () => {
    const { client, server } = talk()
    const [, second] = client(...run("one"), ...run("two"), message("S"))
    assert.strictEqual(server(second, message("1"), message("E", "SERROR\0C40001\0\0"), message("Z", "I")), "- + +!")
    assert.deepInclude(second?.exchange, { tags: [], sqlStates: ["40001"], transactionStatus: "I" })
  })

  it("does not wait for a ReadyForQuery when the client waits at a Flush", () => {
    const { client, server } = talk()
    const [one] = client(...run("one"), message("H"))
    assert.strictEqual(server(one, message("2"), message("D"), message("s")), "- + +!")
    assert.deepStrictEqual(client(message("E", "\0\0\0\0\0")), [], "fetching more is not another execution")
  })

  it("expects no answer to the Sync that a server ignores while it reads a COPY", () => {
    const { client, server } = talk()
    const [copy] = client(...run("copy t from stdin"), message("S"))
    assert.strictEqual(server(copy, message("G")), "-")
    client(message("d"), message("c"), message("S"))
    const [next] = client(message("Q", "next\0"))
    assert.strictEqual(server(copy, message("C", "COPY 1\0"), message("Z", "I")), "+ +!")
    assert.strictEqual(server(next, message("C", "NEXT\0"), message("Z", "T")), "+ +!")
    assert.deepInclude(next?.exchange, { tags: ["NEXT"], transactionStatus: "T" })
  })

  it("forgets a closed statement and follows one that is prepared again", () => {
    const { client } = talk()
    client(...run("old", "name"))
    const [again] = client(...run("new", "name"))
    assert.strictEqual(again?.sql, "new")
    assert.deepStrictEqual(client(message("C", "Sname\0"), message("B", "\0name\0"), message("E", "\0\0\0\0\0")), [])
  })

  it("never takes an error for none", () => assert.strictEqual(sqlState(Buffer.from("SERROR\0")), "XXXXX"))
})

describe("addresses", () => {
  const address = { address: "127.0.0.1", family: "IPv4", port: 9 }

  it("are found and replaced in connection urls", () => {
    const led = (url: string) => [addressOf(new URL(url)), readdressed(new URL(url), address)]
    assert.deepStrictEqual(led("postgres://u:p%40@h/db?sslmode=require&x=1"), [
      { host: "h", port: 5432 },
      "postgres://u:p%40@127.0.0.1:9/db?x=1&sslmode=disable"
    ])
    assert.deepStrictEqual(led("postgresql:///db?host=/tmp&port=6&sslrootcert=a&sslcert=b"), [
      { host: "/tmp", port: 6 },
      "postgresql://127.0.0.1:9/db?sslmode=disable"
    ])
    assert.deepStrictEqual(addressOf(new URL("postgres://[::1]:7/db")), { host: "::1", port: 7 })
  })

  it.scopedLive("and ports must make sense", () =>
    Effect.gen(function* () {
      const bad = yield* Effect.flip(FaultProxy.make({ host: "localhost", port: 70_000 }))
      assert.strictEqual(bad.reason, "InvalidPort")
    })
  )
})

describe("FaultProxy", () => {
  it.scopedLive("delivers the answer to a client that has finished sending", () =>
    Effect.gen(function* () {
      const half = createServer({ allowHalfOpen: true }, (socket) => {
        socket.resume().on("end", () => socket.end(message("N", "late")))
      })
      const port = yield* Effect.acquireRelease(
        Effect.async<number>((resume) => {
          half.listen(0, "127.0.0.1", () => {
            const address = half.address()
            resume(Effect.succeed(address === null || typeof address === "string" ? 0 : address.port))
          })
        }),
        () => Effect.async<void>((resume) => void half.close(() => resume(Effect.void)))
      )
      const proxy = yield* FaultProxy.make({ host: "127.0.0.1", port })
      const received = yield* Effect.async<string>((resume) => {
        const client: Socket = createConnection({ host: proxy.host, port: proxy.port, allowHalfOpen: true })
        let text = ""
        client.on("data", (chunk) => (text += chunk.toString("latin1")))
        client.on("end", () => resume(Effect.succeed(text)))
        client.end(startup)
      })
      assert.include(received, "late")
    })
  )
})
