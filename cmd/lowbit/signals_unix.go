//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// signals interrupt a command: a terminal that closes does too, unless nohup or the like has
// it ignored.
func signals() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}
