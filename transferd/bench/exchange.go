package bench

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	exchanges     = 300
	exchangeAsk   = 64
	exchangeBytes = 64 << 10
	// exchangeRest is long enough for the threads of either end to go to sleep.
	exchangeRest = 300 * time.Microsecond
)

// exchange is what one block costs over TCP without anything of ours: 64 bytes that ask
// and 64 KiB that answer, between two goroutines over loopback. With a rest before each,
// both ends have to be woken.
func exchange(rest time.Duration) (s sample, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	var answering sync.WaitGroup
	defer answering.Wait()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	peer, err := l.Accept()
	if err != nil {
		return s, err
	}
	answering.Go(func() {
		defer peer.Close()
		ask, answer := make([]byte, exchangeAsk), make([]byte, exchangeBytes)
		for {
			if _, err := io.ReadFull(peer, ask); err != nil {
				return // the other end is done
			}
			if _, err := peer.Write(answer); err != nil {
				return
			}
		}
	})
	ask, answer := make([]byte, exchangeAsk), make([]byte, exchangeBytes)
	var took []float64
	for range exchanges {
		time.Sleep(rest)
		began := time.Now()
		if _, err := c.Write(ask); err != nil {
			return s, err
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			return s, err
		}
		took = append(took, float64(time.Since(began)))
	}
	return sample{bytes: exchangeBytes, wire: time.Duration(median(took)), tail: time.Duration(quantile(took, 99))}, nil
}
