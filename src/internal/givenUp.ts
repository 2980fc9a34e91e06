/**
 * How long a body may go on after its signal. The server's own limit is a second longer than the transaction's: by then the
 * driver must have rolled back, since of a connection that ends under an idle transaction some drivers tell nobody but the
 * process, which ends by it.
 */
const graceMillis = 500

/**
 * The body's end, or the failure that it does not come although the signal asks for it. The transaction is closed to the body
 * before anybody hears of either.
 *
 * @internal
 */
export const orGivenUp = <A>(
  body: () => PromiseLike<A>,
  signal: AbortSignal,
  closable: { readonly close: () => void; readonly end?: () => void }
): Promise<A> =>
  new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined
    const wait = (): void => {
      timer = setTimeout(() => {
        closable.close()
        closable.end?.()
        reject(new Error("the body went on after its signal"))
      }, graceMillis)
    }
    if (signal.aborted) wait()
    signal.addEventListener("abort", wait, { once: true })
    void Promise.resolve()
      .then(body)
      .finally(closable.close)
      .then(resolve, reject)
      .finally(() => {
        clearTimeout(timer)
        signal.removeEventListener("abort", wait)
      })
  })
