package gateway

import "time"

// Limits on what a client may send (S17): over them the request is refused
// before anything is reserved or computed.
const (
	MaxBodyBytes      = 4 << 20
	MaxHeaderBytes    = 32 << 10
	MaxPromptBytes    = 1 << 20
	MaxMessages       = 1024
	MaxStops          = 4
	MaxStopBytes      = 256
	MaxKeyBytes       = 255
	MaxRequestIDBytes = 128
	MaxListed         = 1000
	MaxStreams        = 16384 // followed at once by one gateway
)

// What a request gets that does not say.
const (
	DefaultTenant      = "default"
	DefaultMaxTokens   = 256
	DefaultTemperature = 1.0
	DefaultTopP        = 1.0
	DefaultListed      = 50
	DefaultGrace       = 20 * time.Second // for streams, when the gateway stops
	DefaultNotice      = time.Second      // for balancers to see that it is not ready
)

const (
	maxTemperature = 2.0
	maxDeadline    = time.Hour
	headerTimeout  = 10 * time.Second // to send the header
	bodyTimeout    = 30 * time.Second // to send the body
	idleTimeout    = 2 * time.Minute
	writeTimeout   = 30 * time.Second // for one event: a stalled client is a gone client
	unaryTimeout   = 10 * time.Second // of a gRPC call whose client set no deadline
	closeTimeout   = 2 * time.Second  // for the last error event, after the grace
	modelsFresh    = 2 * time.Second
	readyEvery     = time.Second
	drainPoll      = 10 * time.Millisecond // of the streams that are left
)
