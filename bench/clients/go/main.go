// The measured application on franz-go: `app read|write SPEC`, as those of bench/clients/apps.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type spec struct {
	Bootstrap string            `json:"bootstrap"`
	Topic     string            `json:"topic"`
	Name      string            `json:"name"`
	Settings  map[string]string `json:"settings"`
}

func say(event, value string) {
	line, _ := json.Marshal(map[string]any{"at": time.Now().UnixMilli(), event: value})
	fmt.Println(string(line))
}

func options(given spec) []kgo.Opt {
	chosen := []kgo.Opt{kgo.SeedBrokers(given.Bootstrap)}
	for name, text := range given.Settings {
		milliseconds, err := strconv.Atoi(text)
		if err != nil {
			panic(err)
		}
		duration := time.Duration(milliseconds) * time.Millisecond
		switch name {
		case "DialTimeout":
			chosen = append(chosen, kgo.DialTimeout(duration))
		case "RequestTimeoutOverhead":
			chosen = append(chosen, kgo.RequestTimeoutOverhead(duration))
		default:
			panic("unknown setting " + name)
		}
	}
	return chosen
}

func read(given spec) {
	client, err := kgo.NewClient(append(options(given), kgo.ConsumerGroup(given.Name), kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(time.Second))...)
	if err != nil {
		panic(err)
	}
	for {
		fetches := client.PollFetches(context.Background())
		fetches.EachError(func(_ string, _ int32, err error) { fmt.Fprintln(os.Stderr, time.Now().UnixMilli(), err) })
		fetches.EachRecord(func(record *kgo.Record) { say("read", string(record.Value)) })
	}
}

func write(given spec) {
	client, err := kgo.NewClient(append(options(given), kgo.DefaultProduceTopic(given.Topic))...)
	if err != nil {
		panic(err)
	}
	for number := 0; ; number++ {
		value := fmt.Sprintf("%s.%d", given.Name, number)
		client.Produce(context.Background(), kgo.StringRecord(value), func(_ *kgo.Record, err error) {
			if err != nil {
				fmt.Fprintln(os.Stderr, time.Now().UnixMilli(), err)
				return
			}
			say("written", value)
		})
		time.Sleep(100 * time.Millisecond)
	}
}

func main() {
	var given spec
	if err := json.Unmarshal([]byte(os.Args[2]), &given); err != nil {
		panic(err)
	}
	if os.Args[1] == "read" {
		read(given)
	} else {
		write(given)
	}
}
